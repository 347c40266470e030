"""P7: resident memory while documents of 100 MiB go through, one alone and eight at once."""

import asyncio
import random

from bench.benchmarks.sending import submit_and_wait, submit_document, wait
from bench.client import Connection, spread
from bench.figures import Figure, Result, at_most
from bench.ours import Ours
from bench.processes import until
from bench.sides import open_stub, scratch
from bench.work import answer_to, check_audit, check_calls, job_ids

MIB = 2**20
DOCUMENT_MIB = 100
GOALS = {1: 32, 8: 64}
"""Growth in MiB by documents at once."""
WARM = job_ids("warm", 50)


async def run(*, quick: bool) -> Result:
    """Each number of documents on a gateway of its own."""
    size = (20 if quick else DOCUMENT_MIB) * MIB
    document = random.Random(1).randbytes(size)  # noqa: S311  bytes that do not compress, the same in every run
    grown = {number: await _grown_mib(document, number) for number in GOALS}
    figures = [
        Figure(f"RSS growth, {number} at once", grown[number], "MiB", at_most(goal))
        for number, goal in GOALS.items()
    ]
    title = f"documents of {size // MIB} MiB, submit to result, peak RSS over RSS before"
    return Result("P7", title, figures)


async def _grown_mib(document: bytes, number: int) -> float:
    ids = job_ids("large", number)
    async with scratch() as folder, open_stub(folder) as stub, Ours().open(folder, stub.url, number) as live:
        await spread(live.url, WARM, number, submit_and_wait)
        await until(lambda: live.done(len(WARM)))
        before_mib = live.rss_mib()
        await asyncio.gather(*[_send(live.url, job_id, document) for job_id in ids])
        await until(lambda: live.done(len(WARM) + number))
        grown_mib = live.child.peak_rss_mib() - before_mib
        counts = await stub.counts()
        evidence = await live.end()
    check_calls({*WARM, *ids}, counts["calls"])
    check_audit({*WARM, *ids}, evidence)
    return grown_mib


async def _send(url: str, job_id: str, document: bytes) -> None:
    """The result holds the hash of what the upstream got, so it says that every byte arrived."""
    connection = Connection(url)
    given = await submit_document(connection, job_id, document)
    await wait(connection, given, answer_to(job_id, document))
    connection.close()
