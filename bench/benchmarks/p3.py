"""P3: one group of 10,000 documents, from its first byte to the end of its parent, against a BullMQ flow."""

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from bench.benchmarks.p2 import LOCAL, REDIS
from bench.bullmq import open_flow
from bench.client import Connection
from bench.figures import Figure, InvalidRunError, Result, at_least, median
from bench.ours import Gateway, Ours
from bench.sides import Stub, open_stub, scratch
from bench.work import document_of, job_ids

SLOTS = 32
MAX_PARALLEL = 64
"""Two for each slot, so that the next document is there when a slot comes free."""
PREFIX = "child"
PEER = "bullmq"
GOAL = 0.7
PATIENCE_S = 300


@dataclass(frozen=True)
class Load:
    """How much is done."""

    rounds: int
    children: int


FULL = Load(rounds=3, children=10_000)
QUICK = Load(rounds=1, children=1000)


@dataclass(frozen=True)
class Turn:
    """What one side did in its turn."""

    jobs_per_s: float
    accepted_s: float | None
    """From the first byte to the 202; None: the side does not say."""
    cpu_us_per_job: float
    rss_mib: float


async def run(*, quick: bool) -> Result:
    """Both of ours and the peer, in turn."""
    load = QUICK if quick else FULL
    turns: dict[str, list[Turn]] = {LOCAL.name: [], REDIS.name: [], PEER: []}
    for _ in range(load.rounds):
        for side in (LOCAL, REDIS):
            turns[side.name].append(await our_turn(side, load.children))
        turns[PEER].append(await peer_turn(load.children))
    title = (
        f"a group of {load.children} documents of 1 KiB, {SLOTS} slots, max_parallel {MAX_PARALLEL}, "
        f"instant upstream, {load.rounds} rounds"
    )
    return Result("P3", title, _figures(turns), {name: [asdict(t) for t in ts] for name, ts in turns.items()})


async def our_turn(side: Ours, number: int) -> Turn:
    """Our side, alone on the machine."""
    ids = job_ids(PREFIX, number)
    body = _request(ids)
    async with (
        scratch() as folder,
        open_stub(folder) as stub,
        side.open(folder, stub.url, SLOTS) as live,
    ):
        cpu_us, begun = live.cpu_us(), time.time()
        group, accepted_s = await _submit(live, body)
        ended = await _wait(live, group)
        cpu_us, rss_mib = live.cpu_us() - cpu_us, live.rss_mib()
        answers = await asyncio.to_thread(_result, live.url, group)
        await _check(ids, [each["result"] for each in answers], stub)
        await live.drain()
        audited = sum(map(len, live.audited()))
        if audited != number + 1:
            raise InvalidRunError(f"the audit stream has {audited} events of {number} children and a parent")
    return Turn(number / (ended - begun), accepted_s, cpu_us / number, rss_mib)


async def peer_turn(number: int) -> Turn:
    """The peer, alone on the machine."""
    ids = job_ids(PREFIX, number)
    async with scratch() as folder, open_stub(folder) as stub, open_flow(folder, stub.url, SLOTS) as flow:
        cpu_us = flow.cpu_us()
        took_s = await flow.run(PREFIX, number)
        cpu_us, rss_mib = flow.cpu_us() - cpu_us, flow.rss_mib()
        await _check(ids, await flow.answers(), stub)
    return Turn(number / took_s, None, cpu_us / number, rss_mib)


def _request(ids: Sequence[str]) -> bytes:
    children = [
        {"inline": base64.b64encode(document_of(each)).decode(), "content_type": "application/pdf"}
        for each in ids
    ]
    group = {"model": "stub", "max_parallel": MAX_PARALLEL, "children": children}
    return json.dumps({"fanout": group}).encode()


async def _submit(live: Gateway, body: bytes) -> tuple[str, float]:
    """Send the group; its id, and how long that took in seconds."""
    connection, begun = Connection(live.url), time.time()
    answer = await connection.post("/jobs", body, {"Content-Type": "application/json"})
    took_s = time.time() - begun
    connection.close()
    return str(answer.json(202)["job_id"]), took_s


async def _wait(live: Gateway, group: str) -> float:
    """Wait for the end of a group; when it was, in seconds since the epoch."""
    connection = Connection(live.url)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            job = (await connection.get(f"/jobs/{group}/wait?timeout_s=30")).json(200)
            if job["status"] == "completed":
                connection.close()
                return datetime.fromisoformat(job["finished_at"]).timestamp()
            if job["status"] not in {"queued", "processing"}:
                raise InvalidRunError(f"the group is {job['status']}: {job['counts']}")


def _result(url: str, group: str) -> list[Any]:
    split = urlsplit(url)
    connection = HTTPConnection(split.hostname or "", split.port, timeout=60)
    connection.request("GET", f"/jobs/{group}/result")
    answers: list[Any] = json.load(connection.getresponse())
    connection.close()
    return answers


async def _check(ids: Sequence[str], answers: Collection[Any], stub: Stub) -> None:
    """Check that each document was sent once and has its own answer.

    Raises:
        InvalidRunError: it was not, or has not.
    """
    wanted = sorted(hashlib.sha256(document_of(each)).hexdigest() for each in ids)
    documents = (await stub.counts())["documents"]
    if sorted(documents) != wanted or set(documents.values()) != {1}:
        raise InvalidRunError(f"{len(wanted)} documents were sent as {sum(documents.values())} calls")
    if sorted(answer["sha256"] for answer in answers) != wanted:
        raise InvalidRunError(f"{len(answers)} answers are not those of the {len(wanted)} documents")


def _figures(turns: dict[str, list[Turn]]) -> list[Figure]:
    figures = []
    for ours in (LOCAL.name, REDIS.name):
        pairs = zip(turns[ours], turns[PEER], strict=True)
        ratio = median([mine.jobs_per_s / theirs.jobs_per_s for mine, theirs in pairs])
        figures.append(Figure(f"{ours}: jobs/s against {PEER}", ratio, "x", at_least(GOAL)))
    for name, side in turns.items():
        figures += [
            Figure(f"{name}: jobs/s", median([t.jobs_per_s for t in side]), "1/s"),
            Figure(f"{name}: CPU of all its processes a job", median([t.cpu_us_per_job for t in side]), "us"),
            Figure(f"{name}: RSS of all its processes", median([t.rss_mib for t in side]), "MiB"),
        ]
        accepted = [t.accepted_s for t in side if t.accepted_s is not None]
        if accepted:
            figures.append(Figure(f"{name}: from the first byte to 202", median(accepted), "s"))
    return figures
