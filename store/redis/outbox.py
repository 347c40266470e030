"""Words about ended jobs in the Redis store (`store.api_control.Outbox`)."""

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

from store.redis import records
from store.redis.desk import Desk
from store.redis.steps import Step
from store.values import Attempted, Delivery

KEPT_ATTEMPTS: Final = 50
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Attempted).decode


class Outbox(Desk):
    """Deliveries, and the upstreams that people have paused."""

    async def deliveries_due(self, limit: int, *, hold_ms: int) -> Sequence[Delivery]:
        """See `store.api_control.Outbox.deliveries_due`."""
        step = Step("deliveries_due", {"limit": limit, "hold": hold_ms})
        return await self._steps.take(step, lambda said: [_delivery(*each) for each in said[0]])

    async def delivered(self, job_id: str, attempted: Attempted, letter: bytes) -> None:
        """See `store.api_control.Outbox.delivered`."""
        said = {"id": job_id, "next": attempted.next_at, "kept": KEPT_ATTEMPTS}
        await self._steps.take(Step("delivered", said, (_encode(attempted), letter)), len)

    async def deliveries(self, job_id: str) -> Sequence[Attempted]:
        """See `store.api_control.Outbox.deliveries`."""
        step = Step("deliveries", {"id": job_id})
        return await self._steps.take(step, lambda said: tuple(_decode(each) for each in said[0]))

    async def redeliver(self, job_id: str) -> bool:
        """See `store.api_control.Outbox.redeliver`."""
        return await self._steps.take(Step("redeliver", {"id": job_id}), lambda said: bool(said[0]))

    async def set_paused(self, upstream: str, paused: bool) -> None:  # noqa: FBT001  what it is set to
        """See `store.api_control.JobControl.set_paused`."""
        await self._steps.take(Step("set_paused", {"up": upstream, "paused": paused}), len)

    async def paused_upstreams(self) -> Collection[str]:
        """See `store.api_control.JobControl.paused_upstreams`."""
        return await self._steps.take(
            Step("paused"), lambda said: frozenset(name.decode() for name in said[0])
        )


def _delivery(
    job_id: bytes, parts: Sequence[Any] | None, letter: bytes | None, last: bytes | None
) -> Delivery:
    n = _decode(last).n + 1 if last is not None else 1
    return Delivery(job_id.decode(), n, records.job_of(parts) if parts is not None else None, letter)
