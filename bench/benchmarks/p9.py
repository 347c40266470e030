"""P9: from the end of a job to whoever waits for it at the other replica, by long poll or by its stream of events.

Each client submits at one of two replicas and waits at the other, by turns in both ways; any of them runs the job. What
counts is where it ended: the audit stream that has its event says so.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from bench.benchmarks.sending import submit, wait
from bench.client import Connection, wall_ms
from bench.figures import Figure, Result, at_most, median, percentile
from bench.ours import Ours
from bench.sides import open_stub, scratch
from bench.streams import open_stream
from bench.work import answer_to, check, document_of, job_ids

CLIENTS = 8
SLOTS = 8
SLOT_MS = 50
"""Long enough that the client waits by then."""
WAYS = ("long poll", "stream")


@dataclass(frozen=True)
class Heard:
    """When a client knew that its job had ended."""

    way: str
    replica: int
    """Where it waited."""
    at_ms: float


@dataclass(frozen=True)
class Load:
    """How much is done."""

    jobs: int


FULL = Load(jobs=1000)
QUICK = Load(jobs=160)


async def run(*, quick: bool) -> Result:
    """Submit and wait, and compare the end of each job with the moment its client knew."""
    load = QUICK if quick else FULL
    ids = job_ids("waited", load.jobs)
    heard: dict[str, Heard] = {}
    side = Ours("redis", replicas=2)
    async with (
        scratch() as folder,
        open_stub(folder, SLOT_MS) as stub,
        side.open(folder, stub.url, SLOTS) as live,
    ):
        left = iter(enumerate(ids))
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(_client(live.urls, left, heard))
        counts = await stub.counts()
        evidence = await live.end()
        ended = {job_id: replica for replica, traces in enumerate(live.audited()) for job_id in traces}
    check(ids, counts["calls"], evidence)
    taken: dict[tuple[str, bool], list[float]] = {
        (way, across): [] for way in WAYS for across in (True, False)
    }
    for job_id, each in heard.items():
        taken[each.way, ended[job_id] != each.replica].append(
            each.at_ms - evidence.stored[job_id].finished_ms
        )
    title = f"end of a job to its waiter, {load.jobs} jobs, {CLIENTS} clients, two replicas on Redis"
    samples = {f"{way}, {'across' if across else 'same'}": times for (way, across), times in taken.items()}
    return Result("P9", title, _figures(taken), samples)


async def _client(urls: list[str], left: Iterator[tuple[int, str]], heard: dict[str, Heard]) -> None:
    connections = [Connection(url) for url in urls]
    for number, job_id in left:
        here, way = number % 2, WAYS[number // 2 % 2]
        given = await submit(connections[here], job_id)
        if way == "stream":
            stream = await open_stream(urls[1 - here], f"/jobs/{given}/events")
            await stream.until(b"event: job.completed")
            heard[job_id] = Heard(way, 1 - here, wall_ms())
            stream.close()
        await wait(connections[1 - here], given, answer_to(job_id, document_of(job_id)))
        heard.setdefault(job_id, Heard(way, 1 - here, wall_ms()))
    for connection in connections:
        connection.close()


def _figures(taken: dict[tuple[str, bool], list[float]]) -> list[Figure]:
    figures = []
    for way in WAYS:
        across, same = taken[way, True], taken[way, False]
        figures += [
            Figure(f"{way}, ended at the other replica, p50", median(across), "ms", at_most(20)),
            Figure(f"{way}, ended at the other replica, p99", percentile(across, 0.99), "ms", at_most(200)),
            Figure(f"{way}, ended at the same replica, p50", median(same), "ms"),
            Figure(f"{way}, ended at the same replica, p99", percentile(same, 0.99), "ms"),
        ]
    elsewhere = sum(len(taken[way, True]) for way in WAYS)
    total = sum(map(len, taken.values()))
    return [*figures, Figure("share that ended at the other replica", elsewhere / total, "")]
