"""`python -m bench [P2 P4 ...] [--quick]`: runs benchmarks one after another, prints and keeps their figures."""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from bench import report
from bench.benchmarks import BENCHMARKS
from bench.figures import InvalidRunError, Result

KEPT = Path(__file__).parent / "results"


async def run(names: Sequence[str], *, quick: bool) -> list[Result]:
    """Run benchmarks and print each table as soon as it is there; an invalid one says why and has no figures."""
    results = []
    for name in names:
        begin = time.perf_counter()
        try:
            result = await BENCHMARKS[name](quick=quick)
        except* InvalidRunError as invalid:
            result = Result(name, f"INVALID, {_first(invalid)}", ())
        results.append(result)
        print(report.table(result))
        print(f"({name} took {time.perf_counter() - begin:.0f} s)\n", flush=True)
    return results


def _first(group: BaseExceptionGroup[InvalidRunError]) -> InvalidRunError:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def main(arguments: Sequence[str]) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; none: all")
    parser.add_argument(
        "--quick", action="store_true", help="small, to see that it works; its figures are not kept"
    )
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; expected one of {', '.join(BENCHMARKS)}")
    when, surroundings = datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"), report.machine()
    print(surroundings, "\n")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        results = runner.run(run(given.names or list(BENCHMARKS), quick=given.quick))
    if not given.quick:
        print(f"kept in {report.keep(KEPT, results, surroundings, when)}")
    if not all(result.figures for result in results):
        sys.exit("not every run was valid")


if __name__ == "__main__":
    main(sys.argv[1:])
