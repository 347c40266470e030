"""Where our time goes in P1, P2, P2b or P3.

    .venvs/bench/bin/python -m bench.profile P2 [--tool gil|threads|cprofile] [--redis] [--jobs 3000] [--top 40]

gil       py-spy looks from outside, as often as it can see, at who holds the interpreter lock. The gateway is one
          process, so this is what bounds it: the shares to decide by.
threads   py-spy at all threads that run, also where they hold no lock: SQLite, fsync, hashing, compression.
cprofile  counts the calls of the main thread (Trio's) exactly, and slows them down, small functions most.

py-spy needs the right to trace a child: root, or ptrace_scope 0.
"""

import argparse
import asyncio
import pstats
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import uvloop

from bench.benchmarks import p1, p2, p2b, p3
from bench.chat_sides import ON_ITS_CORE, OURS, opening
from bench.ours import Gateway, Ours
from bench.processes import running
from bench.sides import scratch

SAMPLES_PER_S = 250
CHATS_PER_S = 300
"""About so many; P1 is asked for seconds."""
AREAS = {
    "server: Hypercorn and our transport": (
        "hypercorn/",
        "gateway/http/transport",
        "gateway/http/strict_h11",
    ),
    "framework: Quart and our connection class": ("quart", "werkzeug", "flask", "gateway/http/connection"),
    "handlers": ("gateway/http/",),
    "upstream client": ("adapters/",),
    "store": ("store/",),
    "audit": ("gateway/audit/",),
    "runner, metrics, logs": (
        "gateway/manager/",
        "gateway/metrics/",
        "prometheus_client/",
        "structlog/",
        "gateway/logs",
    ),
}
"""Parts of the gateway by where their code lies; the first that fits counts."""
OUTERMOST = 0.8
"""Functions in more of the samples than this are the way into the program and say nothing."""
Stack = tuple[list[str], int]
"""Functions from the outermost in, and in how many samples they stood so."""
PY_SPY = Path(sys.executable).parent / "py-spy"


@dataclass(frozen=True)
class Sampled(Ours):
    """Our side with py-spy looking at it."""

    out: Path = Path()
    only_gil: bool = True

    @asynccontextmanager
    async def open(
        self, folder: Path, upstream: str, slots: int, queued: tuple[str, int] | None = None
    ) -> AsyncIterator[Gateway]:
        """As `Ours.open`; py-spy writes `out` when the gateway has ended."""
        command = [str(PY_SPY), "record", "--format", "raw", "--threads", "--rate", str(SAMPLES_PER_S)]
        command += [
            "--duration",
            "unlimited",
            "--output",
            str(self.out),
            *(["--gil"] if self.only_gil else []),
        ]
        async with super().open(folder, upstream, slots, queued) as live:
            pid = str(live.child.pid)
            async with running("py-spy", [*command, "--pid", pid], self.out.parent) as sampler:
                yield live
                await sampler.ended()


async def measure(name: str, side: Ours, jobs: int) -> None:
    """One turn of our side."""
    if name == "P1":
        chats = replace(side, python=(*ON_ITS_CORE, *side.python), upstreams=OURS)
        print(await p1.alone(opening(chats), jobs / CHATS_PER_S))
    elif name == "P2":
        print(await p2.turn(side, p2.Load(rounds=1, jobs=jobs, lone=1, waited=1)))
    elif name == "P2b":
        print(await p2b.turn(side, jobs))
    else:
        print(await p3.our_turn(side, jobs))


async def with_py_spy(name: str, side: Sampled, jobs: int, top: int) -> None:
    """Sample a turn and print where the time was spent: by area, by function, and by what it was spent for."""
    async with scratch() as folder:
        out = folder / "samples.txt"
        await measure(name, replace(side, out=out), jobs)
        stacks = list(read_stacks(out.read_text()))
    total = sum(number for _, number in stacks)
    areas, own, below = shares(stacks)
    for title, counts in (
        ("by area", areas),
        ("by function, itself", own),
        ("by function, with all it calls", below),
    ):
        print(f"\n{title}, % of {total} samples")
        for label, number in counts.most_common(top):
            print(f"{100 * number / total:6.1f}  {label}")


def read_stacks(raw: str) -> Iterator[Stack]:
    """py-spy's raw form: frames from the outermost in, separated by `;`, a space, the number of samples."""
    for line in raw.splitlines():
        frames, _, number = line.rpartition(" ")
        # A frame ends with its line number, which splits a function into many; the first names the thread.
        names = [frame.rpartition(":")[0] + ")" for frame in frames.split(";") if ":" in frame]
        yield [name for name in names if not name.startswith("thread")], int(number)


def shares(stacks: Sequence[Stack]) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Samples by area, by the function that ran, and by every function that stood in the stack but the outermost."""
    areas: Counter[str] = Counter()
    own: Counter[str] = Counter()
    below: Counter[str] = Counter()
    for names, number in stacks:
        areas[area_of(names)] += number
        own.update({names[-1]: number} if names else {})
        below.update(dict.fromkeys(names, number))
    bound = OUTERMOST * sum(areas.values())
    return areas, own, Counter({name: number for name, number in below.items() if number < bound})


def area_of(names: Sequence[str]) -> str:
    """The area of the innermost frame that has one: what Trio, h11 and the library do counts for who asked."""
    for name in reversed(names):
        for area, folders in AREAS.items():
            if any(f"({folder}" in name for folder in folders):
                return area
    return "Trio itself, and the rest"


async def with_cprofile(name: str, side: Ours, jobs: int, top: int) -> None:
    """Count the calls of a turn's main thread and print the most expensive functions."""
    async with scratch() as folder:
        out = folder / "gateway.prof"
        await measure(name, replace(side, python=(sys.executable, "-m", "cProfile", "-o", str(out))), jobs)
        stats = pstats.Stats(str(out))
    stats.sort_stats("tottime").print_stats(top)
    stats.sort_stats("cumtime").print_stats(top)


def main(arguments: Sequence[str]) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=["P1", "P2", "P2b", "P3"])
    parser.add_argument("--tool", choices=["gil", "threads", "cprofile"], default="gil")
    parser.add_argument(
        "--redis", action="store_true", help="on a redis-server instead of the embedded ledger"
    )
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--top", type=int, default=40)
    given = parser.parse_args(arguments)
    store: Literal["local", "redis"] = "redis" if given.redis else "local"
    if given.tool == "cprofile":
        profiling = with_cprofile(given.name, Ours(store), given.jobs, given.top)
    else:
        side = Sampled(store, only_gil=given.tool == "gil")
        profiling = with_py_spy(given.name, side, given.jobs, given.top)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(profiling)


if __name__ == "__main__":
    main(sys.argv[1:])
