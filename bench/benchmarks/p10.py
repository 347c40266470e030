"""P10: what those cost who only watch: streams of events and long polls on jobs of which nothing becomes.

The jobs are scheduled for tomorrow. Half of the streams are of a job, half of the tenant. At the end one job is
cancelled, and everybody who watches it, and nobody else, must hear of it.
"""

import asyncio
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bench.client import Connection
from bench.figures import Figure, Result, at_most
from bench.ours import Gateway, Ours
from bench.sides import open_stub, scratch
from bench.streams import Stream, open_stream
from bench.work import document_of, job_ids

JOBS = 100
POLL_MS = 300_000
"""The longest poll there is: none ends by itself."""
SETTLE_S = 3.0
"""From the last connection to the look at the memory."""
FILES = 4096
"""Descriptors that both ends need."""


@dataclass(frozen=True)
class Load:
    """How much is done."""

    watchers: int
    """Of each kind."""
    idle_s: float
    """How long they are left alone while the CPU is measured; some times the 15 s after which a stream says something."""


FULL = Load(watchers=1000, idle_s=60)
QUICK = Load(watchers=100, idle_s=20)


async def run(*, quick: bool) -> Result:
    """Watch, look at memory and CPU, and see that all who watch hear of a change."""
    load = QUICK if quick else FULL
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, most), most))
    async with scratch() as folder, open_stub(folder) as stub, Ours().open(folder, stub.url, 1) as live:
        jobs = [await _schedule(live.url, job_id) for job_id in job_ids("watched", JOBS)]
        streams = [f"/jobs/{jobs[n % JOBS]}/events" if n % 2 else "/events" for n in range(load.watchers)]
        polls = [f"/jobs/{jobs[n % JOBS]}/wait?timeout={POLL_MS}" for n in range(load.watchers)]
        for warm in await _open(live, [*streams[:50], *polls[:50]]):
            warm.close()
        bare_cpu = await _cpu_share(live, load.idle_s)
        rss_kib = [_rss_kib(live)]
        held = await _open(live, streams)
        rss_kib.append(await _settled_kib(live))
        held += await _open(live, polls)
        rss_kib.append(await _settled_kib(live))
        cpu = await _cpu_share(live, load.idle_s)
        told_ms = await _cancel_one(live, jobs[1], held)
    figures = [
        Figure("RSS of a stream", (rss_kib[1] - rss_kib[0]) / load.watchers, "KiB", at_most(48)),
        Figure("RSS of a long poll", (rss_kib[2] - rss_kib[1]) / load.watchers, "KiB", at_most(48)),
        Figure("CPU while all are idle, beside none", (cpu - bare_cpu) * 100, "% of a core", at_most(3)),
        Figure("CPU of a gateway that nobody watches", bare_cpu * 100, "% of a core"),
        Figure("a change told to everybody", told_ms, "ms"),
    ]
    title = f"{load.watchers} idle streams of events and {load.watchers} long polls on one process"
    return Result("P10", title, figures)


async def _schedule(url: str, job_id: str) -> str:
    """Submit a job for tomorrow; the id that it was given."""
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    headers = {"X-Model": "stub", "X-Run-At": tomorrow, "Content-Type": "application/octet-stream"}
    connection = Connection(url)
    given: str = (await connection.post("/jobs", document_of(job_id), headers)).json(202)["job_id"]
    connection.close()
    return given


async def _open(live: Gateway, paths: Sequence[str]) -> list[Stream]:
    """A connection for each path, with its stream begun; of a long poll nothing can be seen."""
    held = []
    for path in paths:
        stream = await open_stream(live.url, path)
        if "/wait" not in path:
            await stream.until(b"\nevent: ")
        held.append(stream)
    return held


def _rss_kib(live: Gateway) -> float:
    return live.rss_mib() * 1024


async def _settled_kib(live: Gateway) -> float:
    await asyncio.sleep(SETTLE_S)
    return _rss_kib(live)


async def _cpu_share(live: Gateway, seconds: float) -> float:
    """What part of a core the gateway uses while it is left alone."""
    before_us, began = live.cpu_us(), time.perf_counter()
    await asyncio.sleep(seconds)
    return (live.cpu_us() - before_us) / 1e6 / (time.perf_counter() - began)


async def _cancel_one(live: Gateway, job_id: str, held: Sequence[Stream]) -> float:
    """End a job; ms until all who watch it, or the tenant, have heard of it."""
    concerned = [each for each in held if job_id in each.path or each.path == "/events"]
    connection = Connection(live.url)
    began = time.perf_counter()
    (await connection.post(f"/jobs/{job_id}/cancel", b"", {})).json(200)
    for each in concerned:
        await each.until(b'"cancelled"')
    told_ms = (time.perf_counter() - began) * 1000
    for each in [*held, connection]:
        each.close()
    return told_ms
