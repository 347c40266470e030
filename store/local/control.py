"""The loop's side of what people do with jobs."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, Literal, Protocol, TypeVar

import trio

from store.job import ClaimToken, Job, Status, Submission
from store.local.effects import Lost
from store.local.operations import control, followers, outbox
from store.local.transaction import Kind, Transaction
from store.slots import Slots
from store.values import Attempted, Created, Delivery, Lapsed

T = TypeVar("T")

TOLD_AT_ONCE: Final = 200
"""Followers that one step tells."""


class Write(Protocol):
    """Has an operation done (`LocalJobs`)."""

    async def __call__(
        self,
        name: str,
        operation: Callable[[Transaction], T],
        then: Callable[[T], T] | None = None,
        *,
        kind: Kind = Kind.SETTLEMENT,
    ) -> T:
        """Wait for its answer; `then` applies it on the loop."""
        ...


class LocalControl:
    """The methods of `store.api_control.JobControl`, and of `Outbox` what it writes.

    Args:
        write: has an operation done.
        post: the same without waiting.
        slots: the slot pools.
    """

    def __init__(
        self, write: Write, post: Callable[[str, Callable[[Transaction], object]], None], slots: Slots
    ) -> None:
        self._do = write
        self._have_done = post
        self._pools = slots
        self._voids: dict[tuple[str, ClaimToken], str] = {}
        """Upstreams of claims whose execution was told to stop: their slots are taken until it has."""

    async def cancel(self, job_id: str) -> Job | None:
        """See `store.api_control.JobControl.cancel`."""
        return await self._do("cancel", lambda tx: control.cancel(tx, job_id))

    async def give_back(self, job_id: str, token: ClaimToken) -> None:
        """See `store.api_control.JobControl.give_back`. Slots are in this process: nothing is written."""
        upstream = self._voids.pop((job_id, token), None)
        if upstream is not None:
            self._pools.release(upstream, f"{job_id}:{token.fence}")
        await trio.lowlevel.checkpoint()

    async def retry(self, job_id: str, submission: Submission) -> Created | None:
        """See `store.api_control.JobControl.retry`."""
        return await self._do("retry", lambda tx: control.retry(tx, job_id, submission), kind=Kind.SUBMIT)

    async def hold(self, job_id: str, status: Literal[Status.PAUSED, Status.INTERRUPTED]) -> Job | None:
        """See `store.api_control.JobControl.hold`."""
        return await self._do("hold", lambda tx: control.hold(tx, job_id, status))

    async def resume(self, job_id: str) -> Job | None:
        """See `store.api_control.JobControl.resume`."""
        return await self._do("resume", lambda tx: control.resume(tx, job_id))

    async def delete(self, job_id: str) -> Job | None:
        """See `store.api_control.JobControl.delete`."""
        return await self._do("delete", lambda tx: control.delete(tx, job_id))

    async def lapse(self, served: Collection[str]) -> Lapsed:
        """See `store.api_control.JobControl.lapse`."""
        return await self._do("lapse", lambda tx: control.lapse(tx, served))

    async def set_paused(self, upstream: str, paused: bool) -> None:  # noqa: FBT001  what it is set to
        """See `store.api_control.JobControl.set_paused`."""
        await self._do("set_paused", lambda tx: control.set_paused(tx, upstream, paused), self._note_paused)

    async def paused_upstreams(self) -> Collection[str]:
        """See `store.api_control.JobControl.paused_upstreams`."""
        return await self._do("paused", control.paused_upstreams, self._note_paused)

    def _note_paused(self, upstreams: frozenset[str]) -> frozenset[str]:
        self._pools.gates.set_paused(upstreams)
        return upstreams

    async def deliveries_due(self, limit: int, *, hold_ms: int) -> Sequence[Delivery]:
        """See `store.api_control.Outbox.deliveries_due`."""
        return await self._do("deliveries_due", lambda tx: outbox.due(tx, limit, hold_ms))

    async def delivered(self, job_id: str, attempted: Attempted, letter: bytes) -> None:
        """See `store.api_control.Outbox.delivered`."""
        await self._do("delivered", lambda tx: outbox.delivered(tx, job_id, attempted, letter))

    async def redeliver(self, job_id: str) -> bool:
        """See `store.api_control.Outbox.redeliver`."""
        return await self._do("redeliver", lambda tx: outbox.redeliver(tx, job_id))

    def void(self, lost: Lost) -> None:
        """A claim was ended under its execution: its slot stays taken until the call is over."""
        if self._pools.holds(lost.upstream, f"{lost.job_id}:{lost.token.fence}"):
            self._voids[lost.job_id, lost.token] = lost.upstream

    def tell_followers(self) -> None:
        """Have a portion of followers told, and then the next."""
        self._have_done("followers", partial(followers.release, limit=TOLD_AT_ONCE))
