"""Words about ended jobs in the model store (`store.api_control.Outbox`)."""

from collections.abc import Sequence

from store.testing.model_ledger import Post, Replica
from store.values import Attempted, Delivery

KEPT_ATTEMPTS = 50


class Outbox(Replica):
    """The methods of `store.api_control.Outbox`."""

    async def deliveries_due(self, limit: int, *, hold_ms: int) -> Sequence[Delivery]:
        """Take deliveries whose time has come, and hold them."""
        now = await self._turn()
        posts = sorted(
            (post.due_at, job_id)
            for job_id, post in self._ledger.control.deliveries.items()
            if post.due_at is not None and post.due_at <= now
        )
        taken = []
        for _, job_id in posts[:limit]:
            post = self._ledger.control.deliveries[job_id]
            post.due_at = now + hold_ms
            job = self._ledger.jobs.get(job_id)
            shown = job if job is not None and not job.deleted else None
            taken.append(
                Delivery(job_id, post.attempts[-1].n + 1 if post.attempts else 1, shown, post.letter)
            )
        return taken

    async def delivered(self, job_id: str, attempted: Attempted, letter: bytes) -> None:
        """Record an attempt."""
        await self._turn()
        post = self._ledger.control.deliveries.get(job_id)
        if post is None:
            return
        post.attempts = [*post.attempts, attempted][-KEPT_ATTEMPTS:]
        post.due_at = attempted.next_at
        post.letter = letter if attempted.next_at is not None else None
        if post.due_at is None and job_id not in self._ledger.jobs:
            del self._ledger.control.deliveries[job_id]

    async def deliveries(self, job_id: str) -> Sequence[Attempted]:
        """The attempts made for a job."""
        await self._turn()
        post = self._ledger.control.deliveries.get(job_id)
        return tuple(post.attempts) if post is not None else ()

    async def redeliver(self, job_id: str) -> bool:
        """Have it delivered again."""
        now = await self._turn()
        job = self._ledger.jobs.get(job_id)
        if job is None or job.deleted or not job.status.terminal or job.callback_url is None:
            return False
        self._ledger.control.deliveries.setdefault(job_id, Post(None)).due_at = now
        return True
