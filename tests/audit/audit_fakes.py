"""Small stands-in for what the audit stream works with."""

import base64
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import msgspec
import trio
import zstandard

from gateway.audit import AuditEmitter, Bodies, BodyPolicy, Delivery, Origin, Spool
from gateway.audit.sinks import Sink
from gateway.metrics import Metrics
from gateway.outage import Outage
from store.errors import StoreUnavailable
from store.job import Attempt, AttemptOutcome, Blob, Job, Status, Usage

CREATED = 1_700_000_000_000
FINISHED = CREATED + 900


@asynccontextmanager
async def opened(sink: Sink) -> AsyncIterator[Sink]:
    """A sink, open for the length of the block."""
    await sink.open()
    try:
        yield sink
    finally:
        with trio.move_on_after(5, shield=True):
            await sink.close()


class FakePayloads:
    """Blobs by id, read in small chunks."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.chunk = 7
        self.read_bytes = 0
        self.away = False

    def keep(self, name: str, data: bytes, content_type: str = "application/pdf", **more: object) -> Blob:
        self.held[name] = data
        document = data
        if (offset := more.get("offset")) is not None:
            document = data[offset : offset + more["length"]]
        return Blob(name, len(data), hashlib.sha256(document).hexdigest(), content_type, **more)

    @asynccontextmanager
    async def open(self, blob: Blob) -> AsyncIterator[AsyncIterator[bytes]]:
        await trio.lowlevel.checkpoint()
        if self.away:
            raise StoreUnavailable("away", outcome="not_done")
        async with aclosing(self._chunks(self.held[blob.id])) as chunks:
            yield chunks

    async def _chunks(self, data: bytes) -> AsyncGenerator[bytes]:
        for at in range(0, len(data), self.chunk):
            await trio.lowlevel.checkpoint()
            chunk = data[at : at + self.chunk]
            self.read_bytes += len(chunk)
            yield chunk


class FakeJobs:
    """Remembers whose marks were cleared, in `log` too, beside what else happened."""

    def __init__(self, log: list[str] | None = None) -> None:
        self.cleared: list[str] = []
        self.log = [] if log is None else log
        self.away = False

    async def audited(self, job_ids: Sequence[str]) -> None:
        await trio.lowlevel.checkpoint()
        if self.away:
            raise StoreUnavailable("away", outcome="not_done")
        self.cleared += job_ids
        self.log.append("audited")


class FakeSink:
    """Takes lines unless told to fail; `gate` holds every write back."""

    name = "fake"

    def __init__(self, key: str = "fake") -> None:
        self.key = key
        self.lines: list[dict] = []
        self.failures = 0
        self.failed = trio.Event()
        self.gate = trio.Event()
        self.gate.set()
        self.open_ = False
        self.known_ids: set[str] = set()
        self._more = trio.Event()

    async def wait_lines(self, number: int = 1) -> None:
        """Return once so many lines have been taken."""
        while len(self.lines) < number:
            await self._more.wait()

    @property
    def ids(self) -> list[str]:
        return [event["event_id"] for event in self.lines]

    async def open(self) -> None:
        await trio.lowlevel.checkpoint()
        self.open_ = True

    async def known(self, event_ids):
        await trio.lowlevel.checkpoint()
        return event_ids & self.known_ids

    async def write(self, lines) -> None:
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            self.failed.set()
            raise BrokenPipeError(32, "Broken pipe")
        while lines:
            self.lines.append(msgspec.json.decode(lines.popleft().data))
        self._more.set()
        self._more = trio.Event()

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
        self.open_ = False


def origin(now: int = FINISHED + 5) -> Origin:
    numbers = iter(range(10**6))
    return Origin(
        replica="replica-1",
        now=lambda: now,
        new_id=lambda: f"ulid-{next(numbers)}",
        upstream_class={"ocr": "on_prem"}.get,
    )


def make_job(payload: Blob, result: Blob | None = None, *, number: int = 1, **members: object) -> Job:
    """A finished job."""
    job = Job(
        id=f"job_{number}",
        tenant="acme",
        model="paddle",
        operation="ocr",
        upstream="ocr",
        priority=50,
        max_attempts=3,
        trace_id="trace-1",
        payload=payload,
        request_fingerprint="print",
        surface="portal",
        user_id="u1",
        doc_hash="sha256:abc",
        pages=2,
        seq=number,
        change=3,
        version=3,
        status=Status.FAILED if result is None else Status.COMPLETED,
        created_at=CREATED,
        updated_at=FINISHED,
        attempt=2,
        fence=2,
        endpoint="http://ocr-1",
        finished_at=FINISHED,
        queue_ms=300,
        processing_ms=600,
        upstream_ms=550,
        attempts=(
            Attempt(2, "replica-0", "http://ocr-1", CREATED + 300, FINISHED, AttemptOutcome.COMPLETED),
        ),
        result=result,
        http_status=200,
        usage=Usage(pages=4),
        result_pages=4,
        audit_due=True,
    )
    return msgspec.structs.replace(job, **members)


def bodies(payloads: FakePayloads, **policy: object) -> Bodies:
    return Bodies(payloads, BodyPolicy(**policy))


def unpacked(body: dict) -> bytes:
    """The quoted bytes of an event's body."""
    return zstandard.decompress(base64.b64decode(body["body"]))


class Stage:
    """An emitter with everything around it. Made anew over the same folder, it is the process after a restart."""

    def __init__(self, folder, *sinks, capacity: int = 100, spool_bytes: int = 2**20, **policy) -> None:
        self.payloads = FakePayloads()
        self.jobs = FakeJobs()
        self.metrics = Metrics()
        self.sink = FakeSink()
        self.spool = Spool(folder / "spool", spool_bytes)
        self.delivery = Delivery(sinks or (self.sink,), self.spool, self.metrics)
        self.stream = self.delivery.stream
        self.emitter = AuditEmitter(
            origin(), self.jobs, bodies(self.payloads, **policy), self.delivery, Outage(), capacity=capacity
        )

    def job(self, number: int = 1, **members):
        payload = self.payloads.keep(f"p{number}", b"doc", "application/pdf")
        result = self.payloads.keep(f"r{number}", b"{}", "application/json")
        return make_job(payload, result, number=number, **members)

    def dropped(self, reason: str) -> float:
        return self.metrics.audit_dropped_total.labels(reason)._value.get()

    def outcome(self, sink: str, outcome: str) -> float:
        return self.metrics.audit_events_total.labels(sink, outcome)._value.get()

    @property
    def spool_bytes(self) -> float:
        return self.metrics.audit_spool_bytes._value.get()

    @property
    def ids(self) -> list[str]:
        return self.sink.ids

    async def until(self, condition) -> None:
        """Return once something holds that changes with the stream."""
        await self.stream.changes.until(condition)
