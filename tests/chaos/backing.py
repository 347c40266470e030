"""The store behind the replicas: what their configuration says of it, and what can be done to it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from chaos.history import Census
from chaos.plan import Fault

Lasts = Callable[[], Awaitable[None]]


class Backing(Protocol):
    """A store."""

    claims_last: bool
    """A dead replica's claims are taken back after the visibility timeout; False: at the next start, whenever that is."""

    def lines(self, replica: int) -> str:
        """The lines of a replica's configuration that name it."""

    def opened(self):
        """A block in which it is there."""

    async def strike(self, fault: Fault, lasts: Lasts) -> str:
        """Carry out a fault of the store or of the way to it, and heal it. Returns what there is to say about it.

        Args:
            fault: what it is.
            lasts: returns when it is to be healed.
        """

    async def census(self) -> Census | None:
        """Everything it holds; None: it cannot be looked into."""


class LocalBacking:
    """SQLite in the folder of the one replica."""

    claims_last = False

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"

    def lines(self, replica: int) -> str:
        """All of it lies in one folder, so there can be one replica only."""
        if replica:
            raise ValueError("the local store serves one replica")
        return f"coordination: local\nlocal: {{data_dir: {self._data}, min_free_bytes: 0, fsync: false}}"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """It opens with its process."""
        yield

    async def strike(self, fault: Fault, lasts: Lasts) -> str:
        """Nothing lies between a process and its own file."""
        raise ValueError(f"a local store has no {fault.kind}")

    async def census(self) -> None:
        """Its own tests look into it."""
