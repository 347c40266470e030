"""P11: what a queued job takes of Redis's memory, beside the bytes of its document."""

import json
import sys
from collections import Counter
from pathlib import Path

from redis import Redis

from bench.figures import Figure, InvalidRunError, Result, at_most
from bench.processes import run as run_child
from bench.server import DURABLE, Server, open_server
from bench.sides import scratch
from bench.work import DOCUMENT_BYTES, document_of, job_ids

JOBS = 100_000
QUICK_JOBS = 5000
PREFIX = "queued"
GOAL_BYTES = 1.2 * 1024
SAMPLES = 500
"""Keys of a family that are looked at, when it has more."""


async def run(*, quick: bool) -> Result:
    """Fill a ledger and ask the server."""
    number = QUICK_JOBS if quick else JOBS
    async with scratch() as folder, open_server(folder, DURABLE) as server:
        with Redis(port=server.port) as redis:
            document = document_takes(redis)
            before = used(redis)
            await _python(folder, "fill", server.url, PREFIX, str(number))
            taken = (used(redis) - before) / number
            families = by_family(redis, number)
        await _check(folder, server, number)
    figures = [
        Figure("a queued job, beside its document", taken - document, "bytes", at_most(GOAL_BYTES)),
        Figure(f"the document, {DOCUMENT_BYTES} bytes as a string of Redis", document, "bytes"),
        Figure("a queued job, with it", taken, "bytes"),
    ]
    figures += [
        Figure(f"of it `{family}`", size, "bytes") for family, size in families.most_common() if size >= 1
    ]
    return Result("P11", f"{number} queued jobs of {DOCUMENT_BYTES} bytes in Redis", figures)


def document_takes(redis: Redis) -> int:
    """What the server takes for the bytes of a document, which its allocator rounds up."""
    redis.set("document", document_of(PREFIX))
    with_bytes = redis.memory_usage("document")
    redis.set("document", 1)  # a number stands in the object itself
    taken: int = with_bytes - redis.memory_usage("document")
    redis.delete("document")
    return taken


def used(redis: Redis) -> int:
    """What the server says it uses, bytes, once it has tidied up."""
    redis.memory_purge()
    taken: int = redis.info("memory")["used_memory"]
    return taken


def by_family(redis: Redis, number: int) -> Counter[str]:
    """MEMORY USAGE by the first word of the key, bytes a job; the table of all keys itself is not in it."""
    keys: dict[str, list[bytes]] = {}
    for key in redis.scan_iter(count=10_000):
        keys.setdefault(key.split(b":")[1].decode(), []).append(key)
    sizes: Counter[str] = Counter()
    for family, members in keys.items():
        step = max(1, len(members) // SAMPLES)
        asked = redis.pipeline(transaction=False)
        for key in members[::step]:
            asked.memory_usage(key, samples=0)
        found = asked.execute()
        sizes[family] = sum(found) / len(found) * len(members) / number
    return sizes


async def _check(folder: Path, server: Server, number: int) -> None:
    lines = (await _python(folder, "read", server.url)).splitlines()
    jobs = [json.loads(line) for line in lines if line]
    queued = [job["id"] for job in jobs if job["status"] == "queued"]
    if sorted(queued) != job_ids(PREFIX, number):
        raise InvalidRunError(f"{number} jobs were queued, {len(queued)} are there")


async def _python(folder: Path, *words: str) -> str:
    return await run_child(words[0], [sys.executable, "-m", "bench.ledger", *words], folder)
