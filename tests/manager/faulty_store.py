"""A model store that can go away, as one replica sees it; what others see of the ledger goes on."""

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from enum import Enum, auto
from functools import partial

import trio

from store.errors import StoreUnavailable
from store.testing.model import ModelStore

STORE_TIMEOUT_S = 1.5
"""After which a store that says nothing has given no answer."""


class Fault(Enum):
    AWAY = auto()
    """Known to be away: calls are refused at once."""
    HUNG = auto()
    """Calls are not carried out, and nobody says so."""
    MUTE = auto()
    """Calls are carried out, and nobody says so."""


class Faults:
    """What is wrong with which operations at the moment."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.only: frozenset[str] = frozenset()
        """The operations affected; none named: all."""
        self.steady_since = -math.inf
        self.calls: Counter[str] = Counter()

    async def call(self, name: str, operation: Callable[[], Awaitable[object]]) -> object:
        self.calls[name] += 1
        fault = self.fault if not self.only or name in self.only else None
        if fault is None:
            return await operation()
        if fault is Fault.MUTE:
            await operation()
        if fault is not Fault.AWAY:
            await trio.sleep(STORE_TIMEOUT_S)
        self.meet(name)
        raise StoreUnavailable("no answer", outcome="unknown")

    def meet(self, name: str) -> None:
        """Refuse what is refused at once."""
        if self.fault is Fault.AWAY and (not self.only or name in self.only):
            raise StoreUnavailable("away", outcome="not_done")

    def begin(self, fault: Fault, *only: str) -> None:
        self.fault, self.only = fault, frozenset(only)

    def end(self) -> None:
        """The store is back; the connection is a new one."""
        self.fault = None
        self.steady_since = trio.current_time()

    @contextmanager
    def during(self, fault: Fault, *only: str) -> Iterator[None]:
        """Something is wrong inside the block."""
        self.begin(fault, *only)
        try:
            yield
        finally:
            self.end()


class _Faulty:
    """Hands every call on, unless it fails."""

    def __init__(self, wrapped: object, faults: Faults, prefix: str = "") -> None:
        self._wrapped = wrapped
        self._faults = faults
        self._prefix = prefix

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        method = getattr(self._wrapped, name)

        async def call(*args: object, **named: object) -> object:
            return await self._faults.call(self._prefix + name, partial(method, *args, **named))

        return call


class _FaultyPayloads:
    """Blobs that can be out of reach, also in the middle of one."""

    def __init__(self, payloads, faults: Faults, chunk_bytes: int) -> None:
        self._payloads = payloads
        self._faults = faults
        self._chunk_bytes = chunk_bytes

    def receive(self, reserve):
        return self._payloads.receive(reserve)

    @asynccontextmanager
    async def result(self):
        self._faults.meet("result")
        async with self._payloads.result() as draft:
            yield draft

    @asynccontextmanager
    async def open(self, blob):
        self._faults.meet("open")
        async with self._payloads.open(blob) as chunks:
            content = b"".join([chunk async for chunk in chunks])

        async def pieces():
            for start in range(0, len(content), self._chunk_bytes):
                await trio.lowlevel.checkpoint()
                self._faults.meet("read")
                yield content[start : start + self._chunk_bytes]

        async with aclosing(pieces()) as read:
            yield read


class FaultyStore:
    """One replica's store (`store.api.Coordination`) over a model that others may share.

    Args:
        model: what it is when nothing is wrong.
        chunk_bytes: size of the pieces in which payloads are read.
    """

    shared = True
    durability = "redis"

    def __init__(self, model: ModelStore, chunk_bytes: int = 2**18) -> None:
        self.model = model
        self.faults = Faults()
        self.replica = model.replica
        self.jobs = _Faulty(model.jobs, self.faults)
        self.payloads = _FaultyPayloads(model.payloads, self.faults, chunk_bytes)
        self.slots = _Faulty(model.slots, self.faults, "slots.")
        self.events = model.events

    def now(self) -> int:
        return self.model.now()

    def available(self) -> bool:
        return self.faults.fault is None or bool(self.faults.only)

    def steady_since(self) -> float | None:
        return self.faults.steady_since if self.available() else None
