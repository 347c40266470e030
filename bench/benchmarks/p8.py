"""P8: POST /jobs while large uploads and 500 polls a second go on.

Submits and polls come on a schedule, whatever the answers do, and their latency counts from the moment they were due:
a gateway that falls behind cannot hide it.
"""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from bench.benchmarks.sending import submit, submit_and_wait
from bench.client import Connection, spread
from bench.figures import Figure, Result, at_least, at_most, median, percentile
from bench.ours import Gateway, Ours
from bench.processes import Child, running, until
from bench.sides import open_stub, scratch
from bench.work import check_audit, check_calls, job_ids

SLOTS = 16
SUBMITS_PER_S = 40
POLLS_PER_S = 500
UPLOAD_BYTES = 100 * 2**20
CONNECTIONS = 32
"""For submits, and as many for polls."""
WARM, FIRST = job_ids("warm", 50), "first"


@dataclass(frozen=True)
class Load:
    """How much is done."""

    seconds: int


FULL = Load(seconds=20)
QUICK = Load(seconds=5)


class Schedule:
    """Requests at a steady rate on a few connections; the latencies from when each was due."""

    def __init__(self, url: str, per_s: float, send: Callable[[Connection], Awaitable[object]]) -> None:
        self.latencies_ms: list[float] = []
        self._idle: asyncio.Queue[Connection] = asyncio.Queue()
        for _ in range(CONNECTIONS):
            self._idle.put_nowait(Connection(url))
        self._per_s = per_s
        self._send = send

    async def run(self, seconds: float) -> None:
        """Send for so long, and wait for the last answers."""
        begin = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(round(seconds * self._per_s)):
                due = begin + number / self._per_s
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                group.create_task(self._request(due))

    async def _request(self, due: float) -> None:
        connection = await self._idle.get()
        await self._send(connection)
        self.latencies_ms.append((time.perf_counter() - due) * 1000)
        self._idle.put_nowait(connection)


async def run(*, quick: bool) -> Result:
    """All three loads at a time, on one gateway."""
    load = QUICK if quick else FULL
    ids = job_ids("job", load.seconds * SUBMITS_PER_S)
    async with scratch() as folder, open_stub(folder) as stub, Ours().open(folder, stub.url, SLOTS) as live:
        await spread(live.url, WARM, SLOTS, submit_and_wait)
        first = await submit(Connection(live.url), FIRST)
        submits, polls = _schedules(live.url, ids, first)
        uploaded, taken_s = await _under_load(live, folder, submits, polls, load.seconds)
        await until(live.idle)
        counts = await stub.counts()
        evidence = await live.end()
    # The upload that was broken off may have been complete already.
    complete = [job_id for job_id in uploaded if job_id != uploaded[-1] or job_id in counts["calls"]]
    done = {*WARM, FIRST, *ids, *complete}
    check_calls(done, counts["calls"])
    check_audit(done, evidence)
    upload_mib_per_s = len(complete) * UPLOAD_BYTES / 2**20 / taken_s
    title = (
        f"{SUBMITS_PER_S} submits and {POLLS_PER_S} polls a second and uploads of 100 MiB, {load.seconds} s"
    )
    figures = _figures(submits, polls, taken_s, upload_mib_per_s)
    return Result("P8", title, figures, {"submit_ms": submits.latencies_ms})


def _schedules(url: str, ids: list[str], first: str) -> tuple[Schedule, Schedule]:
    """Submits of these jobs, and polls of the latest that was accepted."""
    left, latest = iter(ids), deque([first], maxlen=1)

    async def submit_next(connection: Connection) -> None:
        latest.append(await submit(connection, next(left)))

    async def poll_latest(connection: Connection) -> None:
        (await connection.get(f"/jobs/{latest[-1]}")).json(200)

    return Schedule(url, SUBMITS_PER_S, submit_next), Schedule(url, POLLS_PER_S, poll_latest)


async def _under_load(
    live: Gateway, folder: Path, submits: Schedule, polls: Schedule, seconds: float
) -> tuple[list[str], float]:
    """Run both schedules while uploads go on; the ids of the uploads that began, and the seconds it took."""
    command = [sys.executable, "-m", "bench.uploads", live.url, str(UPLOAD_BYTES)]
    async with running("uploads", command, folder, ready="large-") as uploads:
        begin = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(submits.run(seconds))
            group.create_task(polls.run(seconds))
        taken_s = time.perf_counter() - begin
        uploads.expect_alive()
    return _uploaded(uploads), taken_s


def _uploaded(uploads: Child) -> list[str]:
    return uploads.log.read_text().split()


def _figures(submits: Schedule, polls: Schedule, taken_s: float, upload_mib_per_s: float) -> list[Figure]:
    polled = len(polls.latencies_ms) / taken_s
    return [
        Figure("POST /jobs, p99", percentile(submits.latencies_ms, 0.99), "ms", at_most(100)),
        Figure("POST /jobs, p50", median(submits.latencies_ms), "ms"),
        Figure("polls answered a second", polled, "1/s", at_least(0.95 * POLLS_PER_S)),
        Figure("GET /jobs/ID, p99", percentile(polls.latencies_ms, 0.99), "ms"),
        Figure("uploads", upload_mib_per_s, "MiB/s"),
    ]
