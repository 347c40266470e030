"""What a run found, as a table for people and as JSON for comparison."""

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from bench.figures import Figure, Result, median

LOOPS = 50
TURNS = 1_000_000
"""Of a loop: some 20 ms."""


def machine() -> str:
    """The machine and what runs on it, in one line."""
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    return (
        f"{_processor()}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}, "
        f"Trio {version('trio')}, Hypercorn {version('hypercorn')}, load before {load}, {_speed()}"
    )


def _speed() -> str:
    """How long a fixed loop takes: where the median is far from the best, others use the same cores."""
    samples_ms = []
    for _ in range(LOOPS):
        began = time.perf_counter()
        for _ in range(TURNS):
            pass
        samples_ms.append((time.perf_counter() - began) * 1000)
    return f"a loop of {TURNS:,} turns takes {min(samples_ms):.1f} ms at best, {median(samples_ms):.1f} in the median"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def markdown(results: Sequence[Result], surroundings: str, when: str) -> str:
    """The tables of a run."""
    parts = [f"# Figures of {when}\n\n{surroundings}\n"]
    parts += [table(result) for result in results]
    return "\n".join(parts)


def table(result: Result) -> str:
    """The table of one benchmark."""
    lines = [
        f"## {result.benchmark}: {result.title}\n",
        "| figure | value | goal | |",
        "| --- | ---: | --- | --- |",
    ]
    lines += [_row(figure) for figure in result.figures]
    return "\n".join(lines) + "\n"


def _row(figure: Figure) -> str:
    value = f"{figure.value:.2f}" if abs(figure.value) < 100 else f"{figure.value:,.0f}"
    unit = f" {figure.unit}" if figure.unit else ""
    if figure.goal is None:
        return f"| {figure.name} | {value}{unit} | | |"
    met = "met" if figure.goal.met(figure.value) else "MISSED"
    return f"| {figure.name} | {value}{unit} | {figure.goal.kind} {figure.goal.bound:g} | {met} |"


def keep(folder: Path, results: Sequence[Result], surroundings: str, when: str) -> Path:
    """Write both forms; the path of the table."""
    stem = when.replace(":", "").replace("-", "")
    folder.mkdir(exist_ok=True)
    path = folder / f"{stem}.md"
    path.write_text(markdown(results, surroundings, when))
    found = {"when": when, "machine": surroundings, "results": [asdict(result) for result in results]}
    path.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    return path
