"""Claims and finishes jobs one after another, each timed: `python -m bench.claims TURNS EACH WHERE...`.

The ledgers (see `bench.ledger`) take turns, on one server; after a turn as many jobs are queued as were done, so a
queue stays as long as it is. Prints one JSON line: for each ledger its samples.
"""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field

import trio
from redis import Redis

from bench.figures import InvalidRunError
from bench.ledger import fill_from, open_ledger
from bench.work import job_ids
from store.api import Coordination
from store.job import Status
from store.policy import EndpointSlots, UpstreamSlots
from store.redis.scripts import script
from store.values import Outcome

STUB = UpstreamSlots("stub", (EndpointSlots("http://127.0.0.1:1/", 32),))
SCRIPTS = ("claim", "finish")
LOGGED = 1_000_000
"""Of the slow log: more than a turn has commands."""


@dataclass
class Samples:
    """What a ledger took, over all turns."""

    claim_ms: list[float] = field(default_factory=list)
    finish_ms: list[float] = field(default_factory=list)
    """Until the caller has the answer."""
    claim_us: list[int] = field(default_factory=list)
    finish_us: list[int] = field(default_factory=list)
    """Of the server's time."""


async def measure(turns: int, each: int, ledgers: Sequence[str]) -> list[Samples]:
    """Let the ledgers take turns."""
    samples = [Samples() for _ in ledgers]
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(Redis.from_url(ledgers[0].partition("#")[0]))
        redis.config_set("slowlog-max-len", LOGGED)
        stores = [await stack.enter_async_context(open_ledger(where)) for where in ledgers]
        for turn in range(turns):
            for store, taken in zip(stores, samples, strict=True):
                redis.config_set("slowlog-log-slower-than", 0)
                redis.slowlog_reset()
                await _work(store, each, taken)
                redis.config_set("slowlog-log-slower-than", -1)
                _log(redis, each, taken)
                await fill_from(store, iter(job_ids(f"again-{turn}", each)))
    return samples


async def _work(store: Coordination, number: int, taken: Samples) -> None:
    done = set()
    for _ in range(number):
        begin = time.perf_counter()
        (claimed,) = await store.jobs.claim(STUB, 1)
        between = time.perf_counter()
        outcome = Outcome(status=Status.COMPLETED, http_status=200, upstream_ms=1)
        job = await store.jobs.finish(claimed.job.id, claimed.token, outcome)
        end = time.perf_counter()
        if not job or job.status is not Status.COMPLETED or job.id != claimed.job.id:
            raise InvalidRunError(f"{claimed.job.id} is {job and job.status}")
        done.add(job.id)
        taken.claim_ms.append((between - begin) * 1000)
        taken.finish_ms.append((end - between) * 1000)
    if len(done) != number:
        raise InvalidRunError(f"{number} claims gave {len(done)} jobs")


def _log(redis: Redis, number: int, taken: Samples) -> None:
    """Take the server's times from its slow log."""
    logged = redis.slowlog_get(LOGGED)
    for name in SCRIPTS:
        head = f"EVALSHA {script(name).sha} ".encode()
        times = [entry["duration"] for entry in logged if entry["command"].startswith(head)]
        if len(times) != number:
            raise InvalidRunError(f"{number} times {name}, the server ran it {len(times)} times")
        getattr(taken, f"{name}_us").extend(times)


if __name__ == "__main__":
    found = trio.run(measure, int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    print(json.dumps([asdict(samples) for samples in found]))
