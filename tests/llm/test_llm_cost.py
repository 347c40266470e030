"""What a call costs, in steps of tasks: the figure that P1 follows, and that no machine changes."""

from collections import Counter
from pathlib import Path

import trio
from llm_world import llm, open_world

from adapters.testing.scripts import answer
from adapters.testing.stub import open_stub_upstream

HELLO = {"model": "m", "messages": []}
OF_THE_GATEWAY = ("hypercorn.", "gateway.", "store.")
CALLS = 50
STEPS_OF_A_CALL = 2
"""To the answer of the upstream, and to the end."""
MORE_NOW_AND_THEN = CALLS // 4
"""What comes in two pieces is read in two steps."""


class Steps(trio.abc.Instrument):
    """Counts the steps of the gateway's tasks, by their names."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name.startswith(OF_THE_GATEWAY):
            self.of[task.name] += 1


async def test_call_takes_few_steps(tmp_path: Path) -> None:
    """A call on a connection that is open takes no step for a wait that is none, and wakes no task but its own (P1)."""
    async with (
        open_stub_upstream(answer(b"{}")) as stub,
        open_world(tmp_path, llm(stub.url)) as world,
        world.client() as client,
    ):
        steps = Steps()
        for number in range(CALLS + 1):
            if number == 1:  # connections are made now
                trio.lowlevel.add_instrument(steps)
            await client.send(HELLO)
            assert (await client.answer()).status == 200
        trio.lowlevel.remove_instrument(steps)
    assert steps.of.total() <= STEPS_OF_A_CALL * CALLS + MORE_NOW_AND_THEN, steps.of
