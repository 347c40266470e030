"""`sluicegate` as a process of its own, beside a gateway."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import trio
from gateway_process import PATIENCE_S, Gateway

ROOT = Path(__file__).parents[1]


class Ended:
    """A command that has ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def __repr__(self) -> str:
        return f"<exit {self.code}>\n{self.out}\n{self.err}"

    def json(self) -> Any:
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


async def sluicegate(
    *arguments: str, gateway: Gateway | None = None, cwd: Path | None = None, **environ: str
) -> Ended:
    """Run a command to its end, against a gateway where one is named."""
    if gateway is not None:
        environ = {"SLUICEGATE_ADMIN_URL": gateway.admin, "SLUICEGATE_URL": gateway.public, **environ}
    with trio.fail_after(PATIENCE_S):
        ended = await trio.run_process(
            [sys.executable, "-m", "gateway", *arguments],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())
