"""The peer's queue from outside: filled before its worker starts, read after it has ended.

python -m bench.peers.queue fill REDIS_PORT PREFIX NUMBER
python -m bench.peers.queue read REDIS_PORT              one JSON line a job: id, status, finished_ms, result
"""

import asyncio
import json
import sys

from arq import create_pool
from arq.connections import RedisSettings
from arq.constants import result_key_prefix
from arq.jobs import Job, JobResult

from bench.work import document_of, job_ids

AT_ONCE = 100
"""Commands at a time: redis-py opens a connection for each."""


async def fill(redis_port: int, prefix: str, number: int) -> None:
    """Queue jobs, as the app would."""
    pool = await create_pool(RedisSettings(port=redis_port))
    ids = job_ids(prefix, number)
    for start in range(0, number, AT_ONCE):
        some = ids[start : start + AT_ONCE]
        await asyncio.gather(*[pool.enqueue_job("ocr", document_of(each), _job_id=each) for each in some])
    await pool.aclose()


async def read(redis_port: int) -> None:
    """Print every finished job."""
    pool = await create_pool(RedisSettings(port=redis_port))
    ids = [key.decode().removeprefix(result_key_prefix) for key in await pool.keys(f"{result_key_prefix}*")]
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        for job in await asyncio.gather(*[Job(each, pool).result_info() for each in some]):
            print(json.dumps(_told(job)))
    await pool.aclose()


def _told(job: JobResult) -> dict[str, object]:
    return {
        "id": job.job_id,
        "status": "completed" if job.success else "failed",
        "finished_ms": round(job.finish_time.timestamp() * 1000),
        "result": job.result.decode() if job.success else repr(job.result),
    }


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fill", port, prefix, number]:
            asyncio.run(fill(int(port), prefix, int(number)))
        case ["read", port]:
            asyncio.run(read(int(port)))
        case _:
            sys.exit(__doc__)
