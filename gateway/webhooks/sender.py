"""The service that brings words of ended jobs to their receivers: one in each replica, whatever its role.

    store.deliveries_due ─▶ lanes (in hand, bounded) ─▶ attempts (bounded) ─▶ store.delivered
         ▲ held HOLD_MS       let go: due again by itself     │
         └── next_at ◀────────────────────────────────────────┘

What must hold
- A delivery is given to one replica at a time, for HOLD_MS. An attempt begins within PATIENCE_S of that and ends
  within ATTEMPT_S and READ_S, so it is recorded before anybody else is given it.
- A process that dies between an attempt and its record leaves the delivery due again: at least once, with the same
  message id.
- Nothing here touches a job, and no job waits for anything here.

When it looks: after any change of a job that this replica hears of, LOOK_S apart at the closest, and every POLL_S for
retries, redeliveries, and what a replica that died had in hand. Every role does it: a job ends in a worker, in an api
replica that cancels it, or under a reclaim, and whoever looks first has it.
"""

import random
from collections.abc import Callable
from typing import Final, Literal, NoReturn, final

import trio
from msgspec import structs

from gateway.logs import get_logger
from gateway.outage import Outage
from gateway.webhooks.callback import CallbackRefused, parse_callback
from gateway.webhooks.lanes import PATIENCE_S, Held, Lanes
from gateway.webhooks.letter import Letter, kept_letter, letter_of, message_id, read_letter
from gateway.webhooks.postman import ATTEMPT_S, READ_S, Attempt, Postman
from gateway.webhooks.schedule import pause_s
from store.api import Coordination
from store.errors import StoreUnavailable
from store.values import Attempted, Delivery

log = get_logger(__name__)

LOOK_S: Final = 0.25
POLL_S: Final = 2.0
AT_ONCE: Final = 100
"""Deliveries taken from the store in one step."""
RECORD_S: Final = 5.0
"""How long recording an attempt may take; also while everything ends."""
HOLD_MS: Final = round(1000 * (PATIENCE_S + ATTEMPT_S + READ_S + RECORD_S)) + 8000
"""With some seconds for a busy loop."""
EARLY_MS: Final = 1000
"""An attempt so long before its time is none of the schedule; less is how clocks differ."""
NO_SECRET: Final = Attempt(reason="the tenant has no webhook_secret_env")


@final
class Sender:
    """Takes deliveries, makes attempts, and records them.

    Args:
        store: where deliveries are.
        postman: makes attempts.
        key_of: the key that signs a tenant's messages; None: it has none.
        outage: hears of a store that gives no answer.
        chance: 0 <= chance < 1; spreads retries.
    """

    def __init__(
        self,
        store: Coordination,
        postman: Postman,
        key_of: Callable[[str], bytes | None],
        outage: Outage,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._jobs = store.jobs
        self._postman = postman
        self._key_of = key_of
        self._outage = outage
        self._chance = chance
        self._lanes = Lanes()

    def __repr__(self) -> str:
        return f"<Sender {self._lanes!r}>"

    async def run(self) -> NoReturn:
        """Deliver for ever. Cancelled, attempts are cut, and made again by whoever looks after HOLD_MS."""
        async with trio.open_nursery() as nursery:
            while True:
                with self._store.events.watch_tenant(None) as watch:
                    try:
                        await self._take_due(nursery)
                        self._outage.answered()
                    except StoreUnavailable as error:
                        self._outage.failed("taking webhooks to deliver", error)
                    with trio.move_on_after(POLL_S):
                        await watch.newer(0)
                await trio.sleep(LOOK_S)

    async def _take_due(self, nursery: trio.Nursery) -> None:
        """Take in hand what is due and has room, and begin to send."""
        while limit := min(AT_ONCE, self._lanes.room):
            since = trio.current_time()
            due = await self._jobs.deliveries_due(limit, hold_ms=HOLD_MS)
            for delivery in due:
                await self._take(delivery, since)
            self._start(nursery)
            if len(due) < limit:
                break

    async def _take(self, delivery: Delivery, since: float) -> None:
        letter = read_letter(delivery.letter) if delivery.letter is not None else None
        if letter is None and delivery.job is not None:
            letter = letter_of(delivery.job)
        if letter is None:
            log.warning("webhook lost, its job was evicted before anybody sent it", job_id=delivery.job_id)
            await self._record(delivery.job_id, self._attempted(delivery.n, NO_SECRET, None), b"")
            return
        self._lanes.put(
            Held(
                job_id=delivery.job_id,
                n=delivery.n,
                letter=letter,
                receiver=_receiver(letter),
                since=since,
            )
        )

    def _start(self, nursery: trio.Nursery) -> None:
        for held in self._lanes.start(trio.current_time()):
            nursery.start_soon(self._send, held, nursery)

    async def _send(self, held: Held, nursery: trio.Nursery) -> None:
        """Make one attempt, and record how it went."""
        began = trio.current_time()
        attempt = await self._attempt(held)
        took_s = trio.current_time() - began
        await self._settle(held, attempt)
        self._lanes.ended(held, took_s, answered=attempt.http_status is not None)
        self._start(nursery)

    async def _attempt(self, held: Held) -> Attempt:
        key = self._key_of(held.letter.tenant)
        if key is None:
            await trio.lowlevel.checkpoint()
            return NO_SECRET
        return await self._postman.post(held.letter, message_id(held.job_id), key)

    async def _settle(self, held: Held, attempt: Attempt) -> None:
        letter = self._next_letter(held.letter, attempt)
        attempted = self._attempted(held.n, attempt, letter)
        self._say(held, attempt, attempted)
        await self._record(held.job_id, attempted, b"" if letter is None else kept_letter(letter))

    def _next_letter(self, letter: Letter, attempt: Attempt) -> Letter | None:
        """What is to be sent again, and when; None: nothing is.

        An attempt before its time was asked for by somebody: the schedule goes on as if it had not been.
        """
        if attempt.is_taken or attempt.is_gone:
            return None
        now = self._store.now()
        if letter.next_at is not None and now < letter.next_at - EARLY_MS:
            return letter
        tries = letter.tries + 1
        pause = pause_s(tries, attempt.retry_after_s, self._chance())
        return (
            None if pause is None else structs.replace(letter, tries=tries, next_at=now + round(pause * 1000))
        )

    def _attempted(self, n: int, attempt: Attempt, letter: Letter | None) -> Attempted:
        over: Literal["delivered", "failed"] = "delivered" if attempt.is_taken else "failed"
        return Attempted(
            n=n,
            at=self._store.now(),
            status=over if letter is None else "retrying",
            http_status=attempt.http_status,
            next_at=None if letter is None else letter.next_at,
        )

    async def _record(self, job_id: str, attempted: Attempted, letter: bytes) -> None:
        """Record an attempt. What is not recorded is made again, after the hold."""
        try:
            await self._write(job_id, attempted, letter)
        except StoreUnavailable as error:
            self._outage.failed("recording a webhook", error)

    async def _write(self, job_id: str, attempted: Attempted, letter: bytes) -> None:
        with trio.move_on_after(RECORD_S, shield=True):
            return await self._jobs.delivered(job_id, attempted, letter)
        raise StoreUnavailable("no answer while an attempt was recorded", outcome="unknown")

    def _say(self, held: Held, attempt: Attempt, attempted: Attempted) -> None:
        words = {
            "job_id": held.job_id,
            "trace_id": held.letter.trace_id,
            "receiver": held.receiver,
            "attempt": held.n,
            "http_status": attempt.http_status,
        }
        if attempted.status == "delivered":
            log.info("webhook delivered", **words)
        elif attempted.status == "retrying":
            log.warning("webhook not delivered", **words, reason=attempt.reason, next_at=attempted.next_at)
        else:
            log.warning("webhook given up", **words, reason=attempt.reason)


def _receiver(letter: Letter) -> str:
    """Scheme, host and port; empty when the URL is one that this release does not take."""
    try:
        return parse_callback(letter.url).origin
    except CallbackRefused:
        return ""
