"""What contract cases are made of: submissions, upstreams, whole executions, and ways to wait and to expect."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import trio

from store.api import Coordination
from store.errors import LeaseLost, Refused
from store.job import PRIORITY_FLOOR, Blob, ErrorKind, Job, PriorityClass, Problem, Status, Submission, Usage
from store.policy import EndpointSlots, TenantLimits, Tenants, UpstreamSlots
from store.testing.harness import Harness
from store.ulid import new_job_id
from store.values import Again, Claimed, Created, Lease, Outcome

R = TypeVar("R", bound=Refused)

UPSTREAM: Final = "ocr"
"""The upstream of every job that names no other."""
INTERACTIVE: Final = 10
"""A priority number of the interactive class."""
BATCH: Final = 50
"""A priority number of the batch class, the one of every job that names no other."""
FAILURE: Final = Problem(
    code="UPSTREAM_5XX", title="The upstream failed", status=502, detail="it said 500", retryable=True
)


# --------------------------------------------------------------------------------------------------- configuration


def pool(slots: int = 1, *, name: str = UPSTREAM, reserved: int = 0) -> UpstreamSlots:
    """An upstream with one endpoint."""
    return UpstreamSlots(name, (EndpointSlots(f"http://{name}.example", slots),), reserved)


def limits(**named: TenantLimits) -> Tenants:
    """Limits of these tenants; every other has none but the default."""
    return Tenants(named=named)


# ------------------------------------------------------------------------------------------------------ submitting


def sha256(content: bytes) -> str:
    """Bare hex."""
    return hashlib.sha256(content).hexdigest()


def submission(payload: Blob, now: int, **fields: Any) -> Submission:
    """What was asked, with a new id; `fields` replace the usual ones."""
    usual: dict[str, Any] = {
        "id": new_job_id(now),
        "tenant": "acme",
        "model": "ocr-large",
        "operation": "ocr",
        "upstream": UPSTREAM,
        "priority": BATCH,
        "max_attempts": 3,
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "payload": payload,
        "request_fingerprint": payload.sha256,
    }
    return Submission(**usual | fields)


async def create(store: Coordination, document: bytes = b"document", **fields: Any) -> Created:
    """Store a document and submit a job for it."""
    async with store.payloads.receive(len(document)) as draft:
        await draft.write(document)
        blob = await draft.seal(sha256=sha256(document), content_type="application/pdf", filename="a.pdf")
        return await store.jobs.create(submission(blob, store.now(), **fields), draft)


async def submit(store: Coordination, document: bytes = b"document", **fields: Any) -> Job:
    """Store a document and submit a job for it; the record."""
    return (await create(store, document, **fields)).job


async def crowd(store: Coordination, number: int, **fields: Any) -> None:
    """Submit many alike jobs, many at a time."""

    async def some(share: int) -> None:
        for _ in range(share):
            await submit(store, **fields)

    tasks = min(number, 32)
    async with trio.open_nursery() as nursery:
        for index in range(tasks):
            nursery.start_soon(some, number // tasks + (index < number % tasks))


# ------------------------------------------------------------------------------------------------------- executing


async def claim_one(
    store: Coordination, upstream: UpstreamSlots | None = None, *, ceiling: int = PRIORITY_FLOOR
) -> Claimed:
    """Claim the next job, which must be there."""
    claimed = await store.jobs.claim(upstream or pool(), 1, ceiling=ceiling)
    assert len(claimed) == 1, "a ready job and a free slot were there, yet nothing was claimed"
    return claimed[0]


async def claim_nothing(store: Coordination, upstream: UpstreamSlots | None = None) -> None:
    """Check that nothing may be claimed."""
    claimed = await store.jobs.claim(upstream or pool(), 1)
    assert not claimed, f"{claimed[0].job.id} was claimed"


async def complete(store: Coordination, claimed: Claimed, content: bytes = b'{"text": "ok"}') -> Job:
    """Finish an execution with a result."""
    async with store.payloads.result() as draft:
        await draft.write(content)
        blob = await draft.seal(sha256=sha256(content), content_type="application/json")
        done = await store.jobs.finish(claimed.job.id, claimed.token, completed(blob), draft)
    assert done is not False, "a live claim was refused its end"
    return done


async def fail(store: Coordination, claimed: Claimed) -> Job:
    """Finish an execution with an error."""
    done = await store.jobs.finish(claimed.job.id, claimed.token, failed())
    assert done is not False, "a live claim was refused its end"
    return done


async def finished(store: Coordination, **fields: Any) -> Job:
    """A completed job, its audit event taken."""
    job = await submit(store, **fields)
    claimed = await claim_one(store)
    assert claimed.job.id == job.id, "another job was ready"
    done = await complete(store, claimed)
    await store.jobs.audited([done.id])
    return done


async def drain_claims(store: Coordination, upstream: UpstreamSlots | None = None) -> Sequence[Job]:
    """Claim and complete one job at a time until there is none; the records as claimed, in that order."""
    order = []
    while claimed := await store.jobs.claim(upstream or pool(), 1):
        order.append(claimed[0].job)
        await complete(store, claimed[0])
    return order


def completed(result: Blob | None = None) -> Outcome:
    """A good end."""
    return Outcome(
        status=Status.COMPLETED,
        result=result,
        http_status=200,
        usage=Usage(pages=2),
        pages=2,
        upstream_request_id="req-1",
        upstream_ms=5,
    )


def failed() -> Outcome:
    """A bad end."""
    return Outcome(
        status=Status.FAILED,
        problem=FAILURE,
        error_code=FAILURE.code,
        error_kind=ErrorKind.PROVIDER_5XX,
        http_status=500,
        upstream_ms=5,
    )


def again(delay_ms: int = 0, *, counted: bool = True) -> Again:
    """A failed attempt that is tried again."""
    kind = ErrorKind.PROVIDER_5XX if counted else ErrorKind.RATE_LIMIT
    return Again(delay_ms=delay_ms, error_kind=kind, counted=counted, upstream_ms=5)


# ---------------------------------------------------------------------------------------------- reading and waiting


async def present(store: Coordination, job_id: str) -> Job:
    """The record of a job that must be known."""
    job = await store.jobs.get(job_id)
    assert job is not None, f"{job_id} is unknown"
    return job


async def break_off() -> None:
    """Fail the way a lost connection does, in the middle of a block."""
    await trio.lowlevel.checkpoint()
    raise ConnectionResetError


async def position(store: Coordination, job: Job) -> int | None:
    """Where a job stands: how many go before it."""
    return (await store.jobs.standing([job]))[0].position


async def parked(store: Coordination, job: Job) -> bool:
    """Where a job stands: whether its tenant's bound holds it."""
    return (await store.jobs.standing([job]))[0].parked


async def read(store: Coordination, blob: Blob) -> bytes:
    """A blob as a whole."""
    async with store.payloads.open(blob) as chunks:
        return b"".join([chunk async for chunk in chunks])


async def is_stored(store: Coordination, blob: Blob) -> bool:
    """Whether a blob can be read."""
    try:
        await read(store, blob)
    except KeyError:
        return False
    return True


async def until_done(store: Coordination, job_id: str) -> Job:
    """Wait for the end of a job as a long poll does: subscribe, read, wait."""
    with store.events.watch(job_id) as watch:
        while True:
            job = await present(store, job_id)
            if job.status.terminal:
                return job
            await watch.newer(job.version)


@dataclass
class Caller:
    """A synchronous caller of its own task: waits for a slot, holds it until told to go."""

    harness: Harness
    dies: bool = False
    """Its replica dies: that nobody renews its lease is no fault."""
    lease: Lease | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    leave: trio.Event = field(default_factory=trio.Event)
    gone: trio.Event = field(default_factory=trio.Event)

    async def run(self, upstream: UpstreamSlots, cls: PriorityClass, tenant: str) -> None:
        """Live through one call."""
        try:
            with self.scope:
                async with self.harness.store.slots.lease(upstream, cls, tenant) as self.lease:
                    await self.leave.wait()
        except LeaseLost:
            if not self.dies:
                raise
        self.gone.set()

    async def hang_up(self) -> None:
        """End the call; returns when it has left and everybody knows."""
        self.leave.set()
        await self.gone.wait()
        await self.harness.advance(0)


class Callers:
    """Starts callers, one after the other, so that their order in line is known."""

    def __init__(self, harness: Harness, nursery: trio.Nursery, *, dies: bool) -> None:
        self._harness = harness
        self._nursery = nursery
        self._dies = dies

    async def call(
        self,
        upstream: UpstreamSlots,
        cls: PriorityClass = PriorityClass.BATCH,
        tenant: str = "acme",
    ) -> Caller:
        """A new caller, holding its slot or standing in line when this returns."""
        caller = Caller(self._harness, self._dies)
        self._nursery.start_soon(caller.run, upstream, cls, tenant)
        await self._harness.advance(0)
        return caller


@asynccontextmanager
async def calling(harness: Harness, *, dies: bool = False) -> AsyncIterator[Callers]:
    """Callers for the time of the block; those still there when it ends hang up. `dies`: their replica does."""
    async with trio.open_nursery() as nursery:
        yield Callers(harness, nursery, dies=dies)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def waiting_to_claim(
    harness: Harness, upstream: UpstreamSlots, *, ceiling: int = PRIORITY_FLOOR
) -> AsyncIterator[trio.Event]:
    """A dispatcher that waits for a chance; gives the event that it sets when it is woken."""
    woken = trio.Event()

    async def wait() -> None:
        await harness.store.jobs.wait_claimable(upstream, ceiling=ceiling)
        woken.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await harness.advance(0)
        yield woken
        nursery.cancel_scope.cancel()


# -------------------------------------------------------------------------------------------------------- expecting


class refused(Generic[R]):  # noqa: N801  reads as the statement it is, like pytest.raises
    """Check that the block is refused with exactly this kind; afterwards `refusal` is what was raised."""

    refusal: R

    def __init__(self, kind: type[R]) -> None:
        self._kind = kind

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        if error is not None and not isinstance(error, Refused):
            return False
        assert type(error) is self._kind, f"ended with {error!r}, expected {self._kind.__name__}"
        self.refusal = error
        return True
