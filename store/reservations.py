"""Slots that a pool of this process has set apart for a step of the ledger, until the ledger has answered."""

from collections.abc import Mapping
from dataclasses import dataclass

from store.values import Lease


@dataclass(frozen=True, slots=True)
class Reservation:
    """Slots taken for a claim whose jobs the ledger has yet to name."""

    upstream: str
    names: tuple[str, ...]
    batch: int
    """How many of them batch jobs may take; interactive ones go first and may take them all."""
    ceiling: int
    """Highest priority number to claim."""
    calls: Mapping[str, int]
    """Synchronous calls in flight by tenant; no bounded tenant gains one until the reservation is settled."""


@dataclass(frozen=True, slots=True)
class Move:
    """A slot reserved at another endpoint until the ledger has said whether a job's lease moves there."""

    reserved: str
    """Name of the reservation."""
    lease: Lease
    """The job's lease as it will be; its name stays."""
