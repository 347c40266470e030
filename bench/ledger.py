"""Our ledger from outside a gateway: filled before one starts, read after one has ended.

python -m bench.ledger fill WHERE PREFIX NUMBER
python -m bench.ledger read WHERE                 one JSON line a job: id, status, finished_ms, queue_ms, result

WHERE is a data folder, or redis://HOST:PORT/DB, with #KEYS when its keys have another prefix than the usual one.
"""

import hashlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import trio

from bench.work import document_of, job_ids
from gateway.clock import wall_clock
from store.api import Coordination
from store.job import Job, Submission
from store.local import open_local
from store.policy import StorePolicy, TenantLimits, Tenants
from store.redis import Place, open_redis
from store.ulid import new_job_id, new_ulid
from store.values import Filter

TENANT = "default"
BATCH = 50
WORKERS = 64
PAGE = 500
KEYS = "sg"
"""Prefix of keys in Redis, as a gateway has it by default."""
MANY = 10_000_000
POLICY = StorePolicy(
    max_queued=MANY, max_finished=MANY, tenants=Tenants(default=TenantLimits(max_queued=MANY))
)


def open_ledger(where: str) -> AbstractAsyncContextManager[Coordination]:
    """The ledger of a data folder, or of a server with keys of that prefix; nothing bounds it."""
    url, _, prefix = where.partition("#")
    replica = new_ulid(wall_clock())
    if "://" in url:
        return open_redis(Place(url, prefix or KEYS), POLICY, replica=replica, wall_clock=wall_clock)
    return open_local(Path(url), POLICY, replica=replica, clock=wall_clock, fsync=False)


async def fill(where: str, prefix: str, number: int) -> None:
    """Queue jobs, as `POST /jobs` would."""
    async with open_ledger(where) as store:
        ids = iter(job_ids(prefix, number))
        async with trio.open_nursery() as nursery:
            for _ in range(WORKERS):
                nursery.start_soon(fill_from, store, ids)


async def fill_from(store: Coordination, ids: Iterator[str]) -> None:
    """Queue the jobs that are left, one after another."""
    for job_id in ids:
        document = document_of(job_id)
        sha256 = hashlib.sha256(document).hexdigest()
        async with store.payloads.receive(len(document)) as draft:
            await draft.write(document)
            payload = await draft.seal(sha256=sha256, content_type="application/octet-stream")
            submission = Submission(
                id=new_job_id(store.now()),
                tenant=TENANT,
                model="stub",
                operation="ocr",
                upstream="stub",
                priority=BATCH,
                max_attempts=1,
                trace_id=job_id,
                payload=payload,
                request_fingerprint=sha256,
                doc_hash=f"sha256:{sha256}",
            )
            await store.jobs.create(submission, draft)


async def read(where: str) -> None:
    """Print every job."""
    async with open_ledger(where) as store:
        async for jobs in _pages(store):
            lines: list[str] = []
            async with trio.open_nursery() as nursery:
                for job in jobs:
                    nursery.start_soon(_read, store, job, lines)
            print("\n".join(lines))


async def _pages(store: Coordination) -> AsyncIterator[tuple[Job, ...]]:
    before, more = None, True
    while more:
        page = await store.jobs.list(Filter(tenant=TENANT), limit=PAGE, before=before)
        if page.jobs:
            yield page.jobs
            before = (page.jobs[-1].created_at, page.jobs[-1].id)
        more = page.has_more


async def _read(store: Coordination, job: Job, lines: list[str]) -> None:
    result = b""
    if job.result is not None:
        async with store.payloads.open(job.result) as chunks:
            result = b"".join([chunk async for chunk in chunks])
    told = {"status": job.status, "finished_ms": job.finished_at or 0, "result": result.decode()}
    lines.append(json.dumps({"id": job.trace_id, "queue_ms": job.queue_ms, **told}))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fill", where, prefix, number]:
            trio.run(fill, where, prefix, int(number))
        case ["read", where]:
            trio.run(read, where)
        case _:
            sys.exit(__doc__)
