"""What the stress of the contract sees of each job, judged as a history: the local store."""

from contextlib import asynccontextmanager

from linearizability import unexplained
from local_harness import local_maker
from recorded_store import RecordedHarness, Recorder

from store.testing.contract_stress import case_everybody_at_once


async def test_linearizability_of_the_local_stress(tmp_path, mock_clock) -> None:
    """What everybody sees of each job is what one store that does one thing at a time would have shown (AT-17)."""
    recorder = Recorder()

    @asynccontextmanager
    async def make(policy):
        async with local_maker(tmp_path, mock_clock)(policy) as harness:
            yield RecordedHarness(harness, recorder)

    await case_everybody_at_once(make)
    assert unexplained(recorder.ops) == []
