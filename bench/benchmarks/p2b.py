"""P2b: a queue of waiting jobs is drained: claim, HTTP call, finish, and on our side audit."""

from dataclasses import asdict, dataclass
from itertools import product

from bench.benchmarks.p2 import AIOHTTP, HTTPX, LOCAL, REDIS
from bench.figures import Figure, Result, at_least, median
from bench.processes import until
from bench.sides import Side, open_stub, scratch
from bench.work import check, job_ids

SLOTS = 32
PREFIX = "queued"
GOAL = 2.0


@dataclass(frozen=True)
class Load:
    """How much is done."""

    rounds: int
    jobs: int


FULL = Load(rounds=2, jobs=20_000)
QUICK = Load(rounds=1, jobs=2000)


@dataclass(frozen=True)
class Turn:
    """What one side did in its turn."""

    jobs_per_s: float
    cpu_us_per_job: float
    rss_mib: float


async def run(*, quick: bool) -> Result:
    """Both of ours and both builds of the peer, in turn."""
    load = QUICK if quick else FULL
    sides: tuple[Side, ...] = (LOCAL, REDIS, HTTPX, AIOHTTP)
    turns: dict[str, list[Turn]] = {side.name: [] for side in sides}
    for _ in range(load.rounds):
        for side in sides:
            turns[side.name].append(await turn(side, load.jobs))
    title = f"drain of {load.jobs} queued jobs, {SLOTS} slots, instant upstream, {load.rounds} rounds"
    return Result(
        "P2b", title, _figures(turns), {name: [asdict(t) for t in ts] for name, ts in turns.items()}
    )


async def turn(side: Side, number: int) -> Turn:
    """One side, alone on the machine, from its readiness to the last stored result."""
    async with (
        scratch() as folder,
        open_stub(folder) as stub,
        side.open(folder, stub.url, SLOTS, queued=(PREFIX, number)) as live,
    ):
        cpu_us = live.cpu_us()
        await until(lambda: live.done(number))
        cpu_us, rss_mib = live.cpu_us() - cpu_us, live.rss_mib()
        counts = await stub.counts()
        evidence = await live.end()
    check(job_ids(PREFIX, number), counts["calls"], evidence)
    last_ms = max(job.finished_ms for job in evidence.stored.values())
    return Turn(
        jobs_per_s=number / (last_ms - live.ready_ms) * 1000,
        cpu_us_per_job=cpu_us / number,
        rss_mib=rss_mib,
    )


def _figures(turns: dict[str, list[Turn]]) -> list[Figure]:
    figures = []
    for ours, peer in product((LOCAL.name, REDIS.name), (HTTPX.name, AIOHTTP.name)):
        pairs = zip(turns[ours], turns[peer], strict=True)
        ratio = median([mine.jobs_per_s / theirs.jobs_per_s for mine, theirs in pairs])
        figures.append(Figure(f"{ours}: jobs/s against {peer}", ratio, "x", at_least(GOAL)))
    for name, side in turns.items():
        figures += [
            Figure(f"{name}: jobs/s", median([t.jobs_per_s for t in side]), "1/s"),
            Figure(f"{name}: CPU of all its processes a job", median([t.cpu_us_per_job for t in side]), "us"),
            Figure(f"{name}: RSS of all its processes", median([t.rss_mib for t in side]), "MiB"),
        ]
    return figures
