"""The actors: they carry out the faults of a plan, each at its time, and heal what they did."""

import random
import time
from functools import partial

import httpx2
import trio

from chaos.history import OF_LINK, OF_REDIS, Kind, Trouble, Verb
from chaos.plan import Fault
from chaos.replica import Replica
from chaos.stories import act_on_upstream
from chaos.world import World

PATIENCE_S = 1.0
AFTERMATH_S = 1.0
"""A replica that was thawed has done what it had begun."""
LONGEST = 2.0
"""Visibility timeouts."""


async def carry_out(world: World, faults: tuple[Fault, ...]) -> None:
    """Do everything; returns when all of it is healed.

    Faults of different replicas, of their ways to Redis and of Redis overlap. One replica suffers one after the other.
    """
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for fault in faults:
            nursery.start_soon(_at, began + fault.at_s, world, fault)
    if any(fault.kind is Kind.HALT for fault in faults):
        await trio.sleep(AFTERMATH_S)
        await _end_late_pause(world)


async def _at(moment: float, world: World, fault: Fault) -> None:
    await trio.sleep_until(moment)
    if fault.kind in OF_REDIS:
        await _strike_redis(world, fault)
    elif fault.kind in OF_LINK:
        await _strike_link(world, fault)
    elif fault.kind is Kind.HALT:
        await _halt(world, fault)
    else:
        await _strike_replica(world, fault)


async def _strike_redis(world: World, fault: Fault) -> None:
    note = Trouble(fault.kind, None, time.time())
    world.history.troubles.append(note)
    note.detail = await world.backing.strike(fault, partial(trio.sleep, fault.length_s))
    note.ended = time.time()


async def _strike_link(world: World, fault: Fault) -> None:
    replica = world.replicas[fault.replica]
    await _take_aim(world, replica, fault)
    with replica.trouble(fault.kind) as note:
        note.detail = await world.backing.strike(fault, partial(_while_it_lasts, world, replica, fault))


async def _strike_replica(world: World, fault: Fault) -> None:
    replica = world.replicas[fault.replica]
    async with replica.struck:
        await _ACTORS[fault.kind](world, replica, fault)


async def _take_aim(world: World, replica: Replica, fault: Fault) -> None:
    """Wait for the moment in which an end is being written; not for ever, since nobody may be called."""
    if fault.aim_s is not None:
        with trio.move_on_after(PATIENCE_S):
            await world.upstream.answers(replica.life)
            await trio.sleep(fault.aim_s)


async def _kill(world: World, replica: Replica, fault: Fault) -> None:
    await _take_aim(world, replica, fault)
    with replica.trouble(Kind.KILL):
        await replica.kill()
    await trio.sleep(fault.length_s)
    await world.start(replica)


async def _while_it_lasts(world: World, replica: Replica, fault: Fault) -> None:
    """One that took aim ends when another replica has begun what this one still believes to hold."""
    if fault.aim_s is None:
        await trio.sleep(fault.length_s)
    else:
        with trio.move_on_after(LONGEST * world.form.visibility_s):
            await world.upstream.takes_over(replica.life)


async def _freeze(world: World, replica: Replica, fault: Fault) -> None:
    await _take_aim(world, replica, fault)
    with replica.trouble(fault.kind):
        replica.freeze()
        await _while_it_lasts(world, replica, fault)
        replica.thaw()


async def _drain(world: World, replica: Replica, fault: Fault) -> None:
    with replica.trouble(Kind.DRAIN):
        await replica.drain()
    await trio.sleep(fault.length_s)
    await world.start(replica)


async def _reload(world: World, replica: Replica, fault: Fault) -> None:
    """One slot less at an endpoint, or at none: never more than the oracle knows of."""
    less = random.Random(f"slots {fault}").choice((None, *world.history.slots))
    slots = {url: count - (url == less) for url, count in world.history.slots.items()}
    with replica.trouble(Kind.RELOAD):
        replica.reload(world.backing.lines(replica.number), slots)
        await trio.lowlevel.checkpoint()


async def _halt(world: World, fault: Fault) -> None:
    rng = random.Random(f"halt {fault}")
    note = Trouble(Kind.HALT, None, time.time())
    world.history.troubles.append(note)
    async with httpx2.AsyncClient(trust_env=False) as http:
        await _insist(world, http, Verb.PAUSE, rng)
        await trio.sleep(fault.length_s)
        await _insist(world, http, Verb.RESUME, rng)
    note.ended = time.time()


async def _end_late_pause(world: World) -> None:
    """A frozen replica may carry out a pause whose sender had asked another one, and has ended it since."""
    rng = random.Random(world.history.seed)
    async with httpx2.AsyncClient(trust_env=False) as http:
        while True:
            await trio.sleep(PATIENCE_S)
            replica = world.somebody(rng)
            if replica is None:
                continue
            try:
                reply = await http.get(f"{replica.admin}/admin/upstreams")
            except httpx2.TransportError:
                continue
            if not any(upstream["paused"] for upstream in reply.json().get("upstreams", ())):
                return
            world.history.acts.append(await act_on_upstream(http, replica, Verb.RESUME, at_last=True))


async def _insist(world: World, http: httpx2.AsyncClient, verb: Verb, rng: random.Random) -> None:
    """Ask replicas until one of them says that it is done; or that it never will be, which the oracle judges."""
    while True:
        replica = world.somebody(rng)
        if replica is not None:
            act = await act_on_upstream(http, replica, verb)
            world.history.acts.append(act)
            if act.settled:
                return
        await trio.sleep(rng.uniform(0.1, 0.5))


_ACTORS = {
    Kind.KILL: _kill,
    Kind.FREEZE: _freeze,
    Kind.NAP: _freeze,
    Kind.DRAIN: _drain,
    Kind.RELOAD: _reload,
}
