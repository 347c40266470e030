"""What the Redis store lets go: eviction, tombstones, the audit mark."""

from collections.abc import Sequence
from typing import Any, Final

from store.redis.control import Control
from store.redis.steps import Step
from store.values import Swept

PORTION: Final = 200
"""Jobs, and tombstones, that one step removes at most."""


class Retention(Control):
    """sweep and audited of `store.api.JobStore`."""

    async def sweep(self) -> Swept:
        """See `store.api.JobStore.sweep`."""
        policy = self._policy
        bounds = {
            "portion": PORTION,
            "max_finished": policy.max_finished,
            "min_result": policy.min_result_ms,
            "ttl": policy.result_ttl_ms,
            "max_tombstones": policy.max_tombstones,
        }
        swept, _, _ = await self._steps.take(Step("sweep", bounds), _read_swept, self._swept)
        return swept

    async def audited(self, job_ids: Sequence[str]) -> None:
        """See `store.api.JobStore.audited`. In portions, so that no step is long."""
        for start in range(0, len(job_ids), PORTION):
            step = Step("audited", {"ids": list(job_ids[start : start + PORTION])})
            await self._steps.take(step, lambda said: (said[0], said[1]), lambda got: self._gone(*got))

    def _swept(self, answer: tuple[Swept, Sequence[bytes], Sequence[bytes]]) -> None:
        _, blobs, files = answer
        self._gone(blobs, files)


def _read_swept(said: Sequence[Any]) -> tuple[Swept, Sequence[bytes], Sequence[bytes]]:
    evicted, tombstones, more, blobs, files = said
    return Swept(evicted, tombstones, more=bool(more)), blobs, files
