"""P5: interactive jobs while a long queue of batch jobs keeps every slot busy."""

import asyncio
from dataclasses import dataclass

from bench.benchmarks.sending import submit, wait
from bench.client import Connection
from bench.figures import Figure, Result, at_most, median, percentile
from bench.ours import Ours
from bench.sides import open_stub, scratch
from bench.work import answer_to, check, document_of, job_ids

SLOTS = 4
SLOT_MS = 100
BATCH_JOBS = 10_000
EVERY_S = 0.137
"""Between interactive submits: no multiple of the slot time, so they come at all moments of it."""
ALLOWED_MS = 30


@dataclass(frozen=True)
class Load:
    """How much is done."""

    interactive: int


FULL = Load(interactive=200)
QUICK = Load(interactive=40)


async def run(*, quick: bool) -> Result:
    """Submit interactive jobs one by one and read how long each was queued."""
    load = QUICK if quick else FULL
    ids = job_ids("now", load.interactive)
    async with (
        scratch() as folder,
        open_stub(folder, SLOT_MS) as stub,
        Ours().open(folder, stub.url, SLOTS, queued=("batch", BATCH_JOBS)) as live,
    ):
        async with asyncio.TaskGroup() as group:
            for job_id in ids:
                group.create_task(_ask(live.url, job_id))
                await asyncio.sleep(EVERY_S)
        evidence = await live.end()
        counts = await stub.counts()
    done = [job_id for job_id, job in evidence.stored.items() if job.status != "queued"]
    check({*done, *ids}, counts["calls"], evidence)
    queue_ms = [float(evidence.stored[job_id].queue_ms or 0) for job_id in ids]
    title = f"{load.interactive} interactive jobs while {BATCH_JOBS} batch jobs wait, {SLOTS} slots of {SLOT_MS} ms"
    return Result("P5", title, _figures(queue_ms, len(done) - len(ids)), {"queue_ms": queue_ms})


def _figures(queue_ms: list[float], batch_done: int) -> list[Figure]:
    return [
        Figure("queue wait, p99", percentile(queue_ms, 0.99), "ms", at_most(SLOT_MS + ALLOWED_MS)),
        Figure("queue wait, p50", median(queue_ms), "ms"),
        Figure("queue wait, longest", max(queue_ms), "ms"),
        Figure("batch jobs done meanwhile", batch_done, ""),
    ]


async def _ask(url: str, job_id: str) -> None:
    connection = Connection(url)
    given = await submit(connection, job_id, priority="interactive")
    await wait(connection, given, answer_to(job_id, document_of(job_id)))
    connection.close()
