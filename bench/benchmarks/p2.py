"""P2: jobs of a 1 KiB document, from the first HTTP submit to the last stored result, with an instant upstream.

One process of ours, on the embedded ledger and on Redis.
"""

from dataclasses import asdict, dataclass

from bench.benchmarks.sending import submit, submit_and_wait
from bench.client import spread, timed, wall_ms
from bench.figures import Figure, Result, at_least, at_most, median, percentile
from bench.ours import Ours
from bench.peer import Peer
from bench.processes import until
from bench.sides import Side, open_stub, scratch
from bench.work import check, job_ids

CLIENTS = 16
SLOTS = 32
LOCAL, REDIS = Ours(), Ours("redis")
HTTPX, AIOHTTP = Peer("httpx"), Peer("aiohttp")
GOALS = {HTTPX.name: 1.8, AIOHTTP.name: 1.0}


@dataclass(frozen=True)
class Load:
    """How much is done in a turn."""

    rounds: int
    jobs: int
    lone: int
    """Jobs of one client, one after another."""
    waited: int
    """Jobs of CLIENTS clients that each wait for their result."""
    warm: int = 50


FULL = Load(rounds=2, jobs=5000, lone=100, waited=1000)
QUICK = Load(rounds=1, jobs=500, lone=30, waited=200)


@dataclass(frozen=True)
class Turn:
    """What one side did in its turn."""

    jobs_per_s: float
    cpu_us_per_job: float
    rss_mib: float
    lone_p50_ms: float
    wait_p50_ms: float
    wait_p99_ms: float


async def run(*, quick: bool) -> Result:
    """Both of ours and both builds of the peer, in turn."""
    load = QUICK if quick else FULL
    sides: tuple[Side, ...] = (LOCAL, REDIS, HTTPX, AIOHTTP)
    turns: dict[str, list[Turn]] = {side.name: [] for side in sides}
    for _ in range(load.rounds):
        for side in sides:
            turns[side.name].append(await turn(side, load))
    return Result(
        "P2", _title(load), _figures(turns), {name: [asdict(t) for t in ts] for name, ts in turns.items()}
    )


async def turn(side: Side, load: Load) -> Turn:
    """One side, alone on the machine."""
    warm, ids = job_ids("warm", load.warm), job_ids("job", load.jobs)
    lone, waited = job_ids("lone", load.lone), job_ids("wait", load.waited)
    async with scratch() as folder, open_stub(folder) as stub, side.open(folder, stub.url, SLOTS) as live:
        await spread(live.url, warm, CLIENTS, submit_and_wait)
        await until(lambda: live.done(len(warm)))
        cpu_us, begin_ms = live.cpu_us(), wall_ms()
        await spread(live.url, ids, CLIENTS, submit)
        await until(lambda: live.done(len(warm) + len(ids)))
        cpu_us, rss_mib = live.cpu_us() - cpu_us, live.rss_mib()
        lone_ms = await _latencies(live.url, lone, 1)
        wait_ms = await _latencies(live.url, waited, CLIENTS)
        counts = await stub.counts()
        evidence = await live.end()
    check([*warm, *ids, *lone, *waited], counts["calls"], evidence)
    last_ms = max(evidence.stored[job_id].finished_ms for job_id in ids)
    return Turn(
        jobs_per_s=load.jobs / (last_ms - begin_ms) * 1000,
        cpu_us_per_job=cpu_us / load.jobs,
        rss_mib=rss_mib,
        lone_p50_ms=median(lone_ms),
        wait_p50_ms=median(wait_ms),
        wait_p99_ms=percentile(wait_ms, 0.99),
    )


async def _latencies(url: str, ids: list[str], clients: int) -> list[float]:
    samples_ms: list[float] = []
    await spread(
        url, ids, clients, lambda connection, job_id: timed(submit_and_wait(connection, job_id), samples_ms)
    )
    return samples_ms


def _title(load: Load) -> str:
    return f"{load.jobs} jobs of 1 KiB over HTTP, {CLIENTS} clients, {SLOTS} slots, instant upstream, {load.rounds} rounds"


def _figures(turns: dict[str, list[Turn]]) -> list[Figure]:
    figures = []
    for ours in (LOCAL.name, REDIS.name):
        own = turns[ours]
        figures += [
            Figure(f"{ours}: jobs/s against {name}", ratio(own, turns[name]), "x", at_least(goal))
            for name, goal in GOALS.items()
        ]
        lone_ms, wait_ms = _median(own, "lone_p50_ms"), _median(own, "wait_p99_ms")
        figures += [
            Figure(f"{ours}: one lone job, submit to result, p50", lone_ms, "ms", at_most(4)),
            Figure(f"{ours}: {CLIENTS} clients, submit to result, p99", wait_ms, "ms", at_most(60)),
        ]
    for name, side in turns.items():
        figures += [
            Figure(f"{name}: jobs/s", _median(side, "jobs_per_s"), "1/s"),
            Figure(f"{name}: CPU of all its processes a job", _median(side, "cpu_us_per_job"), "us"),
            Figure(f"{name}: RSS of all its processes", _median(side, "rss_mib"), "MiB"),
            Figure(f"{name}: one lone job, p50", _median(side, "lone_p50_ms"), "ms"),
            Figure(f"{name}: {CLIENTS} clients, p50", _median(side, "wait_p50_ms"), "ms"),
            Figure(f"{name}: {CLIENTS} clients, p99", _median(side, "wait_p99_ms"), "ms"),
        ]
    return figures


def ratio(ours: list[Turn], theirs: list[Turn]) -> float:
    """The median over the rounds of our speed over theirs in the same round."""
    return median([mine.jobs_per_s / other.jobs_per_s for mine, other in zip(ours, theirs, strict=True)])


def _median(turns: list[Turn], figure: str) -> float:
    return median([getattr(turn, figure) for turn in turns])
