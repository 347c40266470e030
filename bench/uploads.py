"""One large upload after another until the process is ended: a load of its own process, so that it slows no other.

python -m bench.uploads URL BYTES        prints the X-Request-Id of each upload before it begins
"""

import asyncio
import itertools
import random
import sys

import uvloop

from bench.benchmarks.sending import submit_document, wait
from bench.client import Connection
from bench.work import answer_to


async def upload(url: str, size: int) -> None:
    """Upload until cancelled."""
    document = random.Random(1).randbytes(size)  # noqa: S311  bytes that do not compress, the same in every run
    connection = Connection(url)
    for number in itertools.count():
        job_id = f"large-{number:06d}"
        print(job_id, flush=True)
        given = await submit_document(connection, job_id, document)
        await wait(connection, given, answer_to(job_id, document))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(upload(sys.argv[1], int(sys.argv[2])))
