"""The SHA-256 of a document while it passes.

A small one is hashed on the loop, where a thread would cost more than the hash. A large one is collected and hashed
in a worker thread, 1 MiB at a time: hashing holds neither the loop nor, in CPython, the interpreter lock.
"""

import hashlib
from typing import Final

import trio

STEP_BYTES: Final = 2**20
"""What is collected before a thread is asked: the memory that a digest may take."""
ON_LOOP_BYTES: Final = 64 * 1024
"""Up to so much is hashed on the loop, in about 0.1 ms."""
_HASHING_THREADS: Final = 4

_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("hashing threads")


def _threads() -> trio.CapacityLimiter:
    """The limiter of all digests of this run."""
    try:
        return _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(_HASHING_THREADS)
        _limiter.set(limiter)
        return limiter


class Digest:
    """A SHA-256 over chunks. `size` is what it was given so far."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._collected = bytearray()
        self.size = 0

    async def update(self, chunk: bytes | memoryview) -> None:
        """Add bytes; waits for a thread once in STEP_BYTES."""
        self._collected += chunk
        self.size += len(chunk)
        if len(self._collected) >= STEP_BYTES:
            await self._hash_collected()

    async def hexdigest(self) -> str:
        """The digest of everything given, bare hex."""
        await self._hash_collected()
        return self._hash.hexdigest()

    async def _hash_collected(self) -> None:
        collected, self._collected = self._collected, bytearray()
        if len(collected) <= ON_LOOP_BYTES:
            self._hash.update(collected)
        else:
            await trio.to_thread.run_sync(self._hash.update, collected, limiter=_threads())
