"""What `archive` deletes, when, and what it never does, against a scripted admin side."""

import json
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import zstandard
from click.testing import CliRunner

from gateway.cli import asking
from gateway.cli.archive import archive
from gateway.client.exchange import Exchange
from gateway.client.repeats import Repeats

OLD, YOUNG = "2026-01-01T00:00:00.000Z", "2026-03-01T00:00:00.000Z"


def job(name: str, finished_at: str | None = OLD, status: str = "completed") -> dict:
    return {"job_id": name, "status": status, "done": finished_at is not None, "finished_at": finished_at}


class Side:
    """An admin side with some jobs, in pages of two; it notes what is deleted, and what the file held by then."""

    def __init__(self, *jobs: dict, file: Path | None = None) -> None:
        self.jobs = {each["job_id"]: each for each in jobs}
        self._order = [each["job_id"] for each in jobs]
        self._file = file
        self.deleted: list[str] = []
        self.in_file: list[list[str]] = []
        self.gone: set[str] = set()
        """Retention takes them between the list and the look."""

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path.removeprefix("/admin/jobs").strip("/")
        if not path:
            start = int(request.url.params.get("after", "0"))
            data = [self.jobs[name] for name in self._order[start : start + 2]]
            more = start + 2 < len(self._order)
            return httpx2.Response(
                200,
                json={"data": data, "has_more": more, "next": str(start + 2) if more else None, "as_of": ""},
            )
        name, _, rest = path.partition("/")
        if name in self.gone:
            return httpx2.Response(404, json={"code": "JOB_UNKNOWN", "detail": "gone"})
        if request.method == "DELETE":
            self.deleted.append(name)
            self.in_file.append(written(self._file) if self._file else [])
            return httpx2.Response(204)
        return (
            httpx2.Response(200, content=b"R")
            if rest == "result"
            else httpx2.Response(200, json=self.jobs[name])
        )


def written(path: Path) -> list[str]:
    with path.open("rb") as file:
        text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    return [json.loads(line)["job"]["job_id"] for line in text.splitlines()]


@pytest.fixture
def run(monkeypatch):
    def invoke(side: Side, *arguments: str):
        @contextmanager
        def operator(_url, _token):
            with (
                asking.refusals(),
                httpx2.Client(base_url="http://gw/admin/", transport=httpx2.MockTransport(side)) as http,
            ):
                yield asking.Operator(Exchange(http, Repeats(times=0)))

        monkeypatch.setattr(asking, "operator", operator)
        return CliRunner().invoke(archive, ["--before", "2026-02-01", *arguments])

    return invoke


def test_cli_archive_removes_nothing_else_whatever_it_is_shown(run):
    """A job that is not finished, or finished later, is left alone even if the gateway lists it (AX-15)."""
    side = Side(
        job("old"), job("young", YOUNG), job("running", None, "processing"), job("failed", OLD, "failed")
    )
    assert run(side).exit_code == 0
    assert side.deleted == ["old", "failed"]


def test_cli_archive_deletes_after_the_file_has_it(run, tmp_path):
    """Each portion stands in the file, readable, before any of its jobs is deleted (AX-15)."""
    path = tmp_path / "jobs.zst"
    side = Side(job("a"), job("b"), job("c"), file=path)
    result = run(side, "--to", str(path))
    assert (result.exit_code, json.loads(result.stdout)["removed"]) == (0, 3)
    assert side.deleted == ["a", "b", "c"]
    assert side.in_file == [["a", "b"], ["a", "b"], ["a", "b", "c"]]


def test_cli_archive_deletes_nothing_that_could_not_be_written(run, tmp_path, monkeypatch):
    """A disk that takes nothing more ends it with exit 1: what was not written stays in the ledger (AX-15)."""
    path = tmp_path / "jobs.zst"

    synced = []

    def full(number):
        synced.append(number)
        if len(synced) == 2:
            raise OSError(28, "No space left on device")

    side = Side(job("a"), file=path)
    monkeypatch.setattr("gateway.cli.archive.os.fsync", full)
    result = run(side, "--to", str(path))
    assert (result.exit_code, side.deleted) == (1, [])
    assert "still in the ledger" in result.stderr
    monkeypatch.setattr(
        "gateway.cli.archive.os.fsync", lambda number: full(synced.clear() or synced.append(0) or number)
    )
    result = run(side, "--to", str(tmp_path / "other.zst"))
    assert (result.exit_code, side.deleted) == (1, [])
    assert "No space left" in result.stderr


def test_cli_archive_beside_retention(run, tmp_path):
    """What retention takes meanwhile is no error; a folder that is not there is one."""
    side = Side(job("a"), job("b"))
    side.gone = {"a"}
    result = run(side, "--to", str(tmp_path / "jobs.zst"))
    assert (result.exit_code, side.deleted) == (0, ["b"])
    assert run(Side(), "--to", str(tmp_path / "absent" / "jobs.zst")).exit_code == 1
