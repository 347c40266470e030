"""P6: a claim and its finish with few and with very many jobs queued, each step waited for before the next."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench.claims import Samples
from bench.figures import Figure, Result, at_most, median
from bench.processes import run as run_child
from bench.server import DURABLE, open_server
from bench.sides import scratch

GOAL = 1.3
UNDISTURBED = {"auto-aof-rewrite-percentage": "0"}
"""No rewrite of gigabytes beside a measurement."""


@dataclass(frozen=True)
class Load:
    """How much is done."""

    queued: Sequence[int]
    """Jobs; all are held against the first."""
    turns: int
    each: int
    """Claims in a turn."""


FULL = Load(queued=(1000, 100_000, 1_000_000), turns=6, each=250)
QUICK = Load(queued=(1000, 10_000), turns=2, each=100)


async def run(*, quick: bool) -> Result:
    """All queues on one server, in turn."""
    load = QUICK if quick else FULL
    async with scratch() as folder, open_server(folder, DURABLE | UNDISTURBED) as server:
        ledgers = [f"{server.url}#q{number}" for number in load.queued]
        for where, number in zip(ledgers, load.queued, strict=True):
            fill = [sys.executable, "-m", "bench.ledger", "fill", where, "queued", str(number)]
            await run_child("fill", fill, folder)
        measure = [sys.executable, "-m", "bench.claims", str(load.turns), str(load.each), *ledgers]
        found = json.loads(await run_child("claims", measure, folder))
    samples = {number: Samples(**each) for number, each in zip(load.queued, found, strict=True)}
    figures = [figure for number in load.queued for figure in _figures(number, samples, load.queued[0])]
    title = f"claim + finish with so many queued, {load.turns} turns of {load.each}"
    return Result(
        "P6", title, figures, {str(number): each for number, each in zip(load.queued, found, strict=True)}
    )


def _figures(number: int, samples: dict[int, Samples], least: int) -> list[Figure]:
    own = samples[number]
    figures = [
        Figure(f"{number:,} queued: claim + finish, p50", _both_ms(own), "ms"),
        Figure(f"{number:,} queued: server's time of a claim, p50", median(own.claim_us), "us"),
        Figure(f"{number:,} queued: server's time of a finish, p50", median(own.finish_us), "us"),
    ]
    if number != least:
        ratio = _both_ms(own) / _both_ms(samples[least])
        figures.insert(0, Figure(f"{number:,} queued against {least:,}", ratio, "x", at_most(GOAL)))
    return figures


def _both_ms(samples: Samples) -> float:
    pairs = zip(samples.claim_ms, samples.finish_ms, strict=True)
    return median([claim + finish for claim, finish in pairs])
