"""P4: how well slots are kept busy: an upstream of 8 slots that takes exactly 50 or 200 ms, against a bare client.

By one gateway on the embedded ledger, and by two replicas that share the slots over Redis.
"""

from dataclasses import dataclass

from bench.client import Connection, spread, wall_ms
from bench.figures import Figure, InvalidRunError, Result, at_least, median
from bench.ours import Ours
from bench.processes import until
from bench.sides import Stub, open_stub, scratch
from bench.work import answer_to, check, document_of, job_ids

SLOTS = 8
SIDES = (Ours(), Ours("redis", replicas=2))
PREFIX = "queued"
BARE = "bare client"
LATEST = 0.1
"""How late the stub's answers may be (p99), as a share of their time, before a run says nothing."""


@dataclass(frozen=True)
class Load:
    """How much is done."""

    jobs: int
    rounds: dict[int, int]
    """By the upstream's time in ms."""


FULL = Load(jobs=1000, rounds={50: 2, 200: 1})
QUICK = Load(jobs=160, rounds={50: 1, 200: 1})


async def run(*, quick: bool) -> Result:
    """Our drains and the bare client, in turn, for both times."""
    load = QUICK if quick else FULL
    figures: list[Figure] = []
    samples: dict[str, object] = {}
    for delay_ms, rounds in load.rounds.items():
        taken_ms: dict[str, list[float]] = {name: [] for name in (*[side.name for side in SIDES], BARE)}
        for _ in range(rounds):
            for side in SIDES:
                taken_ms[side.name].append(await _ours_ms(side, load.jobs, delay_ms))
            taken_ms[BARE].append(await _bare_ms(load.jobs, delay_ms))
        ideal_ms = load.jobs / SLOTS * delay_ms
        for side in SIDES:
            figures += _figures(side.name, delay_ms, ideal_ms, taken_ms)
        samples[f"{delay_ms} ms"] = taken_ms
    return Result("P4", f"{load.jobs} jobs on {SLOTS} slots of 50 and of 200 ms", figures, samples)


def _figures(name: str, delay_ms: int, ideal_ms: float, taken_ms: dict[str, list[float]]) -> list[Figure]:
    ours = taken_ms[name]
    bare = median([bare / own for own, bare in zip(ours, taken_ms[BARE], strict=True)])
    ideal = median([ideal_ms / own for own in ours])
    fast = delay_ms < 100
    begin = f"{name}, {delay_ms} ms"
    return [
        Figure(f"{begin}: of the bare client's speed", bare, "x", at_least(0.92) if fast else None),
        Figure(f"{begin}: of the ideal", ideal, "x", None if fast else at_least(0.95)),
    ]


async def _ours_ms(side: Ours, number: int, delay_ms: int) -> float:
    """From our readiness to the last stored result, with the jobs queued before."""
    async with (
        scratch() as folder,
        open_stub(folder, delay_ms) as stub,
        side.open(folder, stub.url, SLOTS, queued=(PREFIX, number)) as live,
    ):
        await until(lambda: live.done(number))
        calls = await _timely_calls(stub, delay_ms)
        evidence = await live.end()
    check(job_ids(PREFIX, number), calls, evidence)
    return max(job.finished_ms for job in evidence.stored.values()) - live.ready_ms


async def _bare_ms(number: int, delay_ms: int) -> float:
    """The same calls from as many connections, with nothing in between."""

    async def call(connection: Connection, job_id: str) -> None:
        document = document_of(job_id)
        answer = await connection.post("/ocr", document, {"X-Request-Id": job_id})
        if answer.json(200) != answer_to(job_id, document):
            raise InvalidRunError(f"{job_id} has the answer {answer.body!r}")

    async with scratch() as folder, open_stub(folder, delay_ms) as stub:
        begin_ms = wall_ms()
        await spread(stub.url, job_ids(PREFIX, number), SLOTS, call)
        taken_ms = wall_ms() - begin_ms
        await _timely_calls(stub, delay_ms)
    return taken_ms


async def _timely_calls(stub: Stub, delay_ms: int) -> dict[str, int]:
    counts = await stub.counts()
    if counts["late_p99_ms"] > LATEST * delay_ms:
        raise InvalidRunError(
            f"the stub answered {counts['late_p99_ms']:.1f} ms late (p99): the machine is too busy"
        )
    calls: dict[str, int] = counts["calls"]
    return calls
