"""What commands show to a person: tables on a terminal, in words, harmless whatever a client wrote."""

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio
from gateway_process import PATIENCE_S, running, submit, until_all_done, write_config

from adapters.testing.scripts import answer
from adapters.testing.stub import open_stub_upstream
from gateway.cli.shown import cell, duration

ROOT = Path(__file__).parents[2]


def on_terminal(arguments: list[str], environ: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of a command whose output is a terminal; blocks."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "gateway", *arguments],
        stdin=subprocess.DEVNULL, stdout=follower, stderr=follower,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "200", **environ},
    ) as process:  # fmt: skip
        os.close(follower)
        bound = threading.Timer(PATIENCE_S, process.kill)
        bound.start()
        said = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # Linux says so when nobody has the terminal open any more
                break
            if not piece:
                break
            said += piece
        code = process.wait(PATIENCE_S)
        bound.cancel()
    os.close(leader)
    return code, said.decode()


async def test_cli_tables_on_a_terminal(tmp_path):
    """On a terminal every command prints a table or a line in words, with --json it prints JSON (page 90)."""
    async with open_stub_upstream(answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            job_id = (await submit(client, b"doc", **{"X-Tenant-Id": "acme"}))["job_id"]
            [_] = await until_all_done_of(client, job_id)
            document = tmp_path / "scan.png"
            document.write_bytes(b"x")
            environ = {"SLUICEGATE_ADMIN_URL": gateway.admin, "SLUICEGATE_URL": gateway.public}

            async def said(*arguments: str) -> str:
                code, text = await trio.to_thread.run_sync(on_terminal, [*arguments], environ)
                assert code == 0, text
                return text

            for arguments, words in (
                (["jobs", "list"], ["JOB", "TENANT", job_id, "acme", "completed"]),
                (["jobs", "show", job_id], ["status           completed", "ATTEMPT", "OUTCOME"]),
                (["jobs", "watch", job_id], [job_id, "snapshot"]),
                (["queue"], ["queued       0", "UPSTREAM", "ERROR RATE"]),
                (["upstreams"], ["UPSTREAM", "BREAKER", "closed", stub.url]),
                (["drain", "--wait"], ["draining since"]),
                (["undrain"], ["taking work"]),
                (["reload"], ["nothing has changed"]),
                (["reclaim"], ["0 jobs are queued again"]),
                (["submit", str(document), "--model", "stub", "--wait"], ["completed", str(document)]),
                (["archive", "--before", "2020-01-01"], ["0 jobs removed"]),
            ):
                text = await said(*arguments)
                assert all(word in text for word in words), (arguments, text)
                assert "{" not in text, (arguments, text)
            assert (await said("queue", "--json")).strip().startswith('{"queued"')


async def until_all_done_of(client, job_id):
    client.headers["X-Tenant-Id"] = "acme"
    jobs = await until_all_done(client, [job_id])
    del client.headers["X-Tenant-Id"]
    return jobs


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\x1b[31mb\n", "a?[31mb?"),
        (None, "-"),
        (True, "yes"),
        (0.5, "0.5"),
        ("[red]ü[/red]", "[red]ü[/red]"),
    ],
)
def test_cli_cells_are_harmless(value, expected):
    """A value stands in one line, and nothing in it that a terminal would obey."""
    assert cell(value) == expected


def test_cli_durations_are_for_people():
    """Durations are short: milliseconds, seconds, else hours."""
    assert [duration(each) for each in (None, 0, 999, 1500, 59_999, 3_723_000)] == [
        "-", "0 ms", "999 ms", "1.5 s", "60.0 s", "1:02:03",
    ]  # fmt: skip
