"""Slots for synchronous callers, out of pools that all replicas share.

    acquire ──at once──▶ held ──release──▶ gone
       │                  ▲ │
       └─▶ in line ─offer─┘ └─lost (purged, or not renewed in time)─▶ the block is cancelled, `LeaseLost`

A caller in line is a task here and an entry in the store with an expiry of PATIENCE_MS, renewed while it waits. An
offer is a lease that lives for two seconds unless it is accepted; whoever is cancelled gives back what it was offered.

A release is sent and not waited for: steps of this replica that come later find the slot free, and others as soon as the
store has it. One that fails is owed: it is sent again until it is done or the lease has ended by its time, which is
counted.

A lease is believed to be held until shortly before others may have its slot (`store.policy.trusted_s`), counted from
before the step that extended it was sent. Then its block is cancelled, whatever the store says, or does not say.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, Final

import trio

from store.errors import LeaseLost, LineFull, StoreUnavailable
from store.job import PriorityClass
from store.policy import StorePolicy, UpstreamSlots, trusted_s
from store.redis import keys
from store.redis.calls import Call
from store.redis.steps import Step, Steps
from store.values import Lease, SlotCounts

PATIENCE_MS: Final = 5_000
"""How long an entry in line lives unless it is renewed."""
RENEW_S: Final = 2.0
OWED_S: Final = 0.5
"""Between two tries to give back what could not be given back."""
FULL: Final = 0
"""What `acquire` answers instead of an endpoint when the line is full."""


class RedisSlots:
    """The pools as one replica sees them (`store.api.SlotPools`).

    Args:
        policy: the bounds.
        replica: names the leases of its calls.
        release_failed: told of each lease that could not be released, and so is left to expire.
    """

    def __init__(self, policy: StorePolicy, replica: str, release_failed: Callable[[], None]) -> None:
        self._visibility_ms = policy.visibility_timeout_ms
        self._trusted_s = trusted_s(policy.visibility_timeout_ms / 1000)
        self._moves_on = policy.share_on_loss
        self._replica = replica
        self._release_failed = release_failed
        self._numbers = count(1)
        self._waiting: dict[str, Call] = {}
        self._held: dict[str, Call] = {}
        self._somebody_waits = trio.Event()
        self._owed: dict[str, tuple[Call, float]] = {}
        """Calls that have ended and could not give back what they had, by name; each with the Trio time at which its
        lease has certainly ended."""
        self._somebody_owes = trio.Event()
        self.steps: Steps
        """To the store; set once, before the first call."""

    def __repr__(self) -> str:
        return f"<RedisSlots {len(self._held)} held, {len(self._waiting)} waiting>"

    def lease(
        self, upstream: UpstreamSlots, cls: PriorityClass, tenant: str, *, max_waiters: int | None = None
    ) -> AbstractAsyncContextManager[Lease]:
        """See `store.api.SlotPools.lease`."""
        return self._block(Call(self._new_name(), upstream, cls, tenant), max_waiters)

    def apart(
        self, upstream: UpstreamSlots, cls: PriorityClass, tenant: str, endpoint: str
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold a slot inside the block that was given without the store, which is away; it is told of it by `adopt`.

        Raises:
            LeaseLost: as of `lease`, once the store knows of it.
        """
        call = Call(self._new_name(), upstream, cls, tenant, endpoint, known=False, refused=True)
        return self._block(call, None)

    @asynccontextmanager
    async def _block(self, call: Call, max_waiters: int | None) -> AsyncIterator[Lease]:
        """The block of a call, which waits for a slot unless it has been given one."""
        try:
            if call.endpoint is None:
                endpoint = await self._wait(call, max_waiters)
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                endpoint = call.endpoint
                self._held[call.name] = call
            with call.scope:
                yield Lease(call.upstream.name, endpoint, call.name)
            call.lost |= call.scope.cancelled_caught
        finally:
            self._held.pop(call.name, None)
            if not call.refused:
                self._release(call)
        if call.lost:
            raise LeaseLost(call.name)

    def adopt(self, adopted: Callable[[str], object]) -> None:
        """The store is back: have it told of the slots that were given without it, whether it has room for them or not.

        Args:
            adopted: is told the name of each such lease, on the loop, once the store knows of it.
        """
        calls = [call for call in self._held.values() if not call.known]
        if not calls:
            return
        until = self._trusted_until()

        def note(_: int) -> None:
            for call in calls:
                call.known, call.scope.deadline = True, until
                adopted(call.name)

        pools = _capacities(calls)
        asked = {
            "calls": [call.listed() for call in calls],
            "ups": list(pools),
            "visibility": self._visibility_ms,
        }
        step = Step("adopt", asked, tuple(pools.values()), bounded=False)
        try:
            self.steps.post(step, len, note)
        except StoreUnavailable:
            return  # it is away again, and told when it is back
        for call in calls:
            call.refused = False

    def moved_apart(self, lease: Lease, endpoint: str) -> Lease:
        """A call that the store is not known to know of has its slot at another endpoint.

        Where the store is just being told of the old one, `adopt` has to follow.
        """
        self._held[lease.name].endpoint = endpoint
        return Lease(lease.upstream, endpoint, lease.name)

    def is_known(self, lease: Lease) -> bool:
        """Whether the store knows of it, as far as this replica can say."""
        call = self._held.get(lease.name)
        return call is None or call.known

    def given(self, upstream: str) -> list[Call]:
        """Calls of this replica that have a slot there of which the store knows."""
        return [call for call in self._known() if call.upstream.name == upstream]

    async def move(self, lease: Lease, upstream: UpstreamSlots, tried: Collection[str]) -> Lease | None:
        """See `store.api.SlotPools.move`."""
        call = self._held.get(lease.name)
        if call is None:
            raise LeaseLost(lease.name)
        call.upstream = upstream
        asked = {
            "visibility": self._visibility_ms,
            "short": keys.short(lease.endpoint),
            "tried": [keys.short(url) for url in tried],
        }

        def read(said: Sequence[Any]) -> Lease | None:
            if said[0] is None:
                raise LeaseLost(lease.name)
            endpoint = said[0].decode()
            if not endpoint:
                return None
            call.endpoint = endpoint
            return Lease(lease.upstream, endpoint, lease.name)

        return await self.steps.take(
            Step("move_call", call.said() | asked, (keys.capacities(upstream),)), read
        )

    def answered(self, lease: Lease) -> None:
        """See `store.api.SlotPools.answered`."""
        if call := self._held.get(lease.name):
            call.answered = True

    async def counts(self, upstream: str) -> SlotCounts:
        """See `store.api.SlotPools.counts`."""

        def read(said: Sequence[Any]) -> SlotCounts:
            used, interactive, batch, paused, barred = said
            return SlotCounts(
                {url.decode(): leases for url, leases in used},
                {PriorityClass.INTERACTIVE: interactive, PriorityClass.BATCH: batch},
                paused=bool(paused),
                barred=frozenset(url.decode() for url in barred),
            )

        return await self.steps.take(Step("slot_counts", {"up": upstream}), read)

    # ------------------------------------------------------------------------------------- a call's way

    async def _wait(self, call: Call, max_waiters: int | None) -> str:
        """Stand in line until there is a slot; its endpoint."""
        self._waiting[call.name] = call
        self._somebody_waits.set()
        try:
            while True:
                call.told = trio.Event()
                call.scope.deadline = self._trusted_until()
                endpoint = await self._acquire(call, max_waiters)
                max_waiters = None  # whoever stood in line stays in it
                if endpoint is None:
                    endpoint = await self._wait_offer(call)
                if endpoint is not None:
                    call.endpoint = endpoint
                    self._held[call.name] = call
                    return endpoint
        finally:
            del self._waiting[call.name]

    async def _wait_offer(self, call: Call) -> str | None:
        """Wait in line; None when the place is gone, the offer has expired, or is of no endpoint of ours."""
        await call.told.wait()
        if (endpoint := call.endpoint) is None:
            return None
        if all(each.url != endpoint for each in call.upstream.endpoints):
            self._release(call)
        else:
            call.scope.deadline = self._trusted_until()
            if await self._accept(call, endpoint):
                return endpoint
        call.endpoint = None
        return None

    async def _acquire(self, call: Call, max_waiters: int | None) -> str | None:
        asked = {"visibility": self._visibility_ms, "patience": PATIENCE_MS, "most": max_waiters}
        step = Step("acquire", call.said() | asked, (keys.capacities(call.upstream),))

        # A refusal comes as an answer: what the step made known to others stands.
        try:
            got = await self.steps.take(
                step, lambda said: said[0].decode() if isinstance(said[0], bytes) else said[0]
            )
        except StoreUnavailable as error:
            call.refused = not call.asked and error.outcome == "not_done"
            raise
        call.asked = True
        if got == FULL and max_waiters is not None:
            call.refused = True
            raise LineFull(call.upstream.name, max_waiters)
        return got

    async def _accept(self, call: Call, endpoint: str) -> bool:
        asked = {"visibility": self._visibility_ms, "short": keys.short(endpoint)}
        return await self.steps.take(Step("accept", call.said() | asked), lambda said: bool(said[0]))

    def _release(self, call: Call, until: float | None = None) -> bool:
        """Give back slot and place in line; False when the store is away. What fails is owed.

        Args:
            call: has ended, or asks anew.
            until: of a release that was owed, when its lease has ended.
        """
        urls = {endpoint.url for endpoint in call.upstream.endpoints}
        shorts = [keys.short(url) for url in urls | ({call.endpoint} if call.endpoint else set())]
        asked = {
            "shorts": shorts,
            "answered": keys.short(call.endpoint) if call.endpoint and call.answered else None,
        }
        step = Step("release", call.said() | asked, bounded=False)
        owed = call, trio.current_time() + self._visibility_ms / 1000 if until is None else until
        try:
            self.steps.post(step, len, failed=partial(self._owes, *owed))
        except StoreUnavailable:
            self._owes(*owed)
            return False
        return True

    def _owes(self, call: Call, until: float) -> None:
        self._owed[call.name] = call, until
        self._somebody_owes.set()

    async def keep_releasing(self) -> None:
        """Send again the releases that are owed. A service of the store; asks nothing while there are none."""
        while True:
            await self._somebody_owes.wait()
            await trio.sleep(OWED_S)
            owed, self._owed, self._somebody_owes = self._owed, {}, trio.Event()
            is_away = False
            for call, until in owed.values():
                if call.name in self._waiting or call.name in self._held:
                    continue  # it has asked anew, and gives back what it has when it ends
                if trio.current_time() >= until:
                    self._release_failed()
                elif is_away:
                    self._owes(call, until)
                else:
                    is_away = not self._release(call, until)

    # --------------------------------------------------------------------------- what the store tells

    def offered(self, name: str, endpoint: str) -> None:
        """A slot was offered to a call in line."""
        call = self._waiting.get(name)
        if call is not None:
            call.endpoint = endpoint
            call.told.set()

    def held(self) -> list[list[str]]:
        """The leases of this replica, as a renewal lists them."""
        return [call.listed() for call in self._known()]

    def _known(self) -> list[Call]:
        return [call for call in self._held.values() if call.known]

    def _new_name(self) -> str:
        return f"{self._replica}:{next(self._numbers)}"

    def _trusted_until(self) -> float:
        """How long a lease holds that is extended by what is sent now."""
        return trio.current_time() + self._trusted_s

    def renewing(self) -> Callable[[], None]:
        """A renewal of all leases of this replica is about to be sent; gives what notes that it was carried out."""
        renewed, until = self._known(), self._trusted_until()

        def note() -> None:
            for call in renewed:
                call.scope.deadline = until

        return note

    def lost(self, names: Sequence[str]) -> None:
        """These leases were purged: their calls end."""
        for name in names:
            call = self._held.pop(name, None)
            if call is not None:
                call.lost = True
                call.scope.cancel("slot lease lost: it was not renewed in time")

    async def keep_waiting(self) -> None:
        """Renew the entries of calls in line. A service of the store; asks nothing while nobody waits."""
        while True:
            await self._somebody_waits.wait()
            await trio.sleep(RENEW_S)
            if not self._waiting:
                self._somebody_waits = trio.Event()
                continue
            try:
                gone = await self.steps.take(
                    self._wait_step(), lambda said: [each.decode() for each in said[0]]
                )
            except StoreUnavailable:
                if self._moves_on and not self.steps.available:
                    self.ask_again()  # and be told that the store is away: this replica may have a slot for them
                continue  # who waits is told when it asks; the next renewal comes soon
            self.ask_again(gone)

    def _wait_step(self) -> Step:
        waiting = [[call.name, call.upstream.name] for call in self._waiting.values()]
        pools = _capacities(self._waiting.values())
        asked = {"waiting": waiting, "ups": list(pools), "patience": PATIENCE_MS}
        return Step("wait", asked, tuple(pools.values()))

    def ask_again(self, names: Sequence[str] | None = None) -> None:
        """Places in line that are gone (offered, which was not heard, or expired); None: nobody knows of any."""
        for name in list(self._waiting) if names is None else names:
            if call := self._waiting.get(name):
                call.told.set()


def _capacities(calls: Iterable[Call]) -> dict[str, bytes]:
    """Of the upstreams of these calls, by name."""
    return {call.upstream.name: keys.capacities(call.upstream) for call in calls}
