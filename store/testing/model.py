"""The model store: what a store must do, in plain dictionaries.

It is the specification in executable form: no I/O, no threads, every operation one synchronous stretch behind one
checkpoint. The contract suite and simulations of the gateway run over it in virtual time.

    model_ledger      the state, and the one function that changes a record
    model_lanes       ready jobs and whose turn it is          model_blobs      payloads and results
    model_admission   how jobs come in                         model_executions claims, their writes, their ends
    model_reads       records, lists, figures                  model_retention  what is let go

Several replicas may share one ledger (`ModelStore.join`). Claims expire by time alone, as they do where replicas
are processes of their own.
"""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

import trio

from store.events import Events
from store.policy import StorePolicy, Tenants
from store.slots import Slots
from store.testing.model_blobs import ModelPayloads
from store.testing.model_control import Control
from store.testing.model_executions import Executions
from store.testing.model_ledger import Ledger
from store.testing.model_outbox import Outbox
from store.testing.model_reads import Reads
from store.testing.model_retention import Retention


class ModelJobs(Control, Executions, Outbox, Reads, Retention):
    """The ledger as one replica sees it (`store.api.JobStore`)."""


class ModelStore:
    """One replica's store (`store.api.Coordination`). Made by `open_model`, or by another replica's `join`.

    Args:
        ledger: shared by all replicas.
        replica: this replica's id.
    """

    durability: Literal["memory", "process", "disk", "redis"] = "memory"

    def __init__(self, ledger: Ledger, replica: str) -> None:
        self.replica = replica
        self._ledger = ledger
        self._jobs = ModelJobs(ledger, replica)
        self._events = ledger.events[replica] = Events()
        self._payloads = ModelPayloads(ledger.blobs, ledger.policy, self._jobs.check_open)

    def __repr__(self) -> str:
        return f"<ModelStore {self.replica}, {len(self._ledger.jobs)} jobs>"

    @property
    def jobs(self) -> ModelJobs:
        """The ledger."""
        return self._jobs

    @property
    def payloads(self) -> ModelPayloads:
        """Documents and large results."""
        return self._payloads

    @property
    def slots(self) -> Slots:
        """Leases for synchronous callers."""
        return self._ledger.slots

    @property
    def events(self) -> Events:
        """Wake-ups."""
        return self._events

    def now(self) -> int:
        """The store's time, ms since the epoch."""
        return self._ledger.clock()

    def set_tenants(self, tenants: Tenants) -> None:
        """Replace the tenants' limits; holds from the next step on."""
        self._ledger.set_tenants(tenants)

    def available(self) -> bool:
        """A dictionary is never away."""
        return True

    @property
    def shared(self) -> bool:
        """Any replica may be joined by another."""
        return True

    def steady_since(self) -> float | None:
        """Always: a dictionary has no connection to lose."""
        return -math.inf

    def join(self, replica: str) -> "ModelStore":
        """Another replica over the same ledger."""
        return ModelStore(self._ledger, replica)

    def close(self) -> None:
        """Let this replica be dead: its calls raise `StoreClosed`, its claims are left to expire."""
        self._jobs.close()


@asynccontextmanager
async def open_model(
    policy: StorePolicy, clock: Callable[[], int], replica: str
) -> AsyncIterator[ModelStore]:
    """Open an empty model store.

    Args:
        policy: its bounds.
        clock: the store's time, ms since the epoch; it must run with Trio's clock.
        replica: the id of its first replica.
    """
    ledger = Ledger(policy, clock, replica)
    store = ModelStore(ledger, replica)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ledger.promote_when_due)
        try:
            yield store
        finally:
            store.close()
            nursery.cancel_scope.cancel()
