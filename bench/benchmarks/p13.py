"""P13: from the start of the process to its word that it is ready, on an empty data folder."""

from bench.benchmarks.sending import submit_and_wait
from bench.client import spread
from bench.figures import Figure, Result, at_most, median
from bench.ours import Ours
from bench.sides import open_stub, scratch
from bench.work import check, job_ids

STARTS = 10
QUICK_STARTS = 3
SLOTS = 4
IDS = job_ids("first", 1)


async def run(*, quick: bool) -> Result:
    """Start and end a gateway again and again."""
    starts_s = [await _start_s() for _ in range(QUICK_STARTS if quick else STARTS)]
    figures = [
        Figure("start to ready, median", median(starts_s), "s", at_most(1.2)),
        Figure("start to ready, longest", max(starts_s), "s"),
    ]
    return Result("P13", f"{len(starts_s)} starts", figures, {"starts_s": starts_s})


async def _start_s() -> float:
    """One start; a job shows that ready means ready."""
    async with scratch() as folder, open_stub(folder) as stub, Ours().open(folder, stub.url, SLOTS) as live:
        await spread(live.url, IDS, 1, submit_and_wait)
        counts = await stub.counts()
        evidence = await live.end()
    check(IDS, counts["calls"], evidence)
    return live.child.ready_after_s
