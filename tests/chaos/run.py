"""One run: the plan, the load and the faults together, then the last look."""

import time
from pathlib import Path

import trio

from chaos.actors import carry_out
from chaos.backing import Backing
from chaos.closing import Auditor
from chaos.forms import Form
from chaos.history import History
from chaos.load import Clients
from chaos.plan import Plan
from chaos.world import World, open_world

TICK_S = 0.02
LAG_S = 0.03


async def run(form: Form, plan: Plan, history: History, backing: Backing, folder: Path) -> None:
    """Carry out a plan; the history has everything that was seen.

    Raises:
        trio.TooSlowError: it did not end within the form's limit.
    """
    with trio.fail_after(form.limit_s):
        async with open_world(form, plan, history, backing, folder) as world, trio.open_nursery() as watchers:
            watchers.start_soon(_watch_lag, history)
            watchers.start_soon(_watch_processes, world)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(carry_out, world, plan.faults)
                nursery.start_soon(_submit, world, plan)
            history.healed = time.time()
            await Auditor(world).run()
            watchers.cancel_scope.cancel("the run is over")


async def _submit(world: World, plan: Plan) -> None:
    """Submit everything and tell every story; not for ever: what is stuck then is found by the last look."""
    bound_s = world.form.load_s + world.form.settle_s
    with trio.move_on_after(bound_s) as bound:
        await Clients(world, world.history.seed).run(plan.errands)
    if bound.cancelled_caught:
        world.history.closing.overdue += f"clients still at work after {bound_s:g} s; "


async def _watch_lag(history: History) -> None:
    while True:
        asleep, due = time.time(), trio.current_time() + TICK_S
        await trio.sleep_until(due)
        if trio.current_time() - due > LAG_S:
            history.lags.append((asleep, time.time()))


async def _watch_processes(world: World) -> None:
    while True:
        await trio.sleep(1)
        for replica in world.replicas:
            await world.revive(replica)
