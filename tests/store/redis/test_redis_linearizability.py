"""What the stress of the contract sees of each job, judged as a history: two replicas on Redis."""

from contextlib import asynccontextmanager

from linearizability import unexplained
from recorded_store import RecordedHarness, Recorder
from shared_harness import shared_redis_maker

from store.testing.shared_cases import SHARED_CASES


async def test_linearizability_of_the_shared_stress(shared_redis, mock_clock) -> None:
    """What two replicas see of each job is what one store that does one thing at a time would have shown (AT-17)."""
    recorder = Recorder()

    @asynccontextmanager
    async def make(policy):
        with shared_redis.client() as client:
            async with shared_redis_maker(shared_redis.unix_url, client, mock_clock)(policy) as harness:
                yield RecordedHarness(harness, recorder)

    await SHARED_CASES["shared_everybody_at_once"](make)
    assert unexplained(recorder.ops) == []
