"""`sluicegate archive`: take finished jobs out of the ledger, into a file first when one is named.

A job is written with its result, the file is fsynced, and only then is the job deleted; so whatever breaks off in the
middle loses nothing, and at worst leaves jobs that stand in the file and in the ledger. Each portion is a zstd frame
of its own: what was fsynced can be read whatever became of the rest.
"""

import base64
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import click
import msgspec
import zstandard
from rich.console import Console

from gateway.cli.asking import JsonObject, Operator, asks_operator, refuse
from gateway.cli.jobs import listed
from gateway.cli.shown import is_table, json_option, show_json
from gateway.client import calls
from gateway.client.errors import GatewayError

PORTION: Final = 100
"""Jobs in a frame."""
ENDED: Final = ("completed", "failed", "cancelled", "superseded")
GONE: Final = frozenset({"JOB_UNKNOWN", "RESULT_EXPIRED"})


class Instant(click.ParamType[datetime]):
    """A date (its beginning, UTC) or a time with a zone."""

    name = "date"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The instant."""
        if isinstance(value, datetime):
            return value
        text = str(value)
        try:
            instant = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r} is neither a date such as 2026-01-31 nor an RFC 3339 time", param, ctx)
        if instant.tzinfo is None:
            if len(text) > len("2026-01-31"):
                self.fail(f"{text!r} has no zone; expected a time such as 2026-01-31T12:00:00Z", param, ctx)
            instant = instant.replace(tzinfo=UTC)
        return instant


@click.command()
@click.option(
    "--before",
    type=Instant(),
    required=True,
    help="Jobs that finished earlier: a date, or a time with a zone.",
)
@click.option(
    "--to",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write them there first, results included: zstd-compressed JSON lines. The file must be new.",
)
@json_option
@asks_operator
def archive(admin: Operator, before: datetime, path: Path | None, *, as_json: bool) -> None:
    """Remove jobs that finished before a date, after they are safely in a file when one is named; groups with their children."""
    with ExitStack() as stack:
        file = None if path is None else stack.enter_context(_new_file(path))
        status = stack.enter_context(Console(stderr=True).status("archiving ..."))
        removed = 0
        for portion in _portions(admin, before):
            if file is not None:
                _write(admin, portion, file)
            removed += sum([_forget(admin, job["job_id"]) for job in portion])
            status.update(f"archiving: {removed} jobs")
    if is_table(as_json=as_json):
        click.echo(f"{removed} jobs removed" + (f", they are in {path}" if path is not None else ""))
    else:
        show_json({"removed": removed, "file": None if path is None else str(path)})


def _portions(admin: Operator, before: datetime) -> Iterator[Sequence[JsonObject]]:
    """Finished jobs, as lists show them. That they are finished and old enough is looked at here again."""
    after = None
    while True:
        filters = {"status": ENDED, "finished_before": before.isoformat(), "limit": PORTION, "after": after}
        page = admin.ask(calls.listing(filters))
        portion = [job for job in page["data"] if job["done"] and _instant(job["finished_at"]) < before]
        if portion:
            yield portion
        after = page["next"]
        if after is None:
            return


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """The file, which is there after a power cut as well."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("xb"))
            _sync_folder(path.parent)
        except FileExistsError:
            refuse(f"{path} exists already; expected the name of a new file")
        except OSError as error:
            refuse(str(error))
        yield file


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _write(admin: Operator, portion: Sequence[JsonObject], file: BinaryIO) -> None:
    """Append a portion; when this returns it survives a power cut."""
    try:
        with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as frame:
            for summary in portion:
                for each in _with_children(admin, summary):
                    frame.write(_line(admin, each))
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        refuse(f"{error}; what was not written is still in the ledger")


def _with_children(admin: Operator, summary: JsonObject) -> Iterator[JsonObject]:
    """A job; behind a group its children, which go with it."""
    yield summary
    if summary.get("counts"):
        yield from listed(admin, {"group": summary["job_id"]}, summary["counts"]["total"])


def _line(admin: Operator, summary: JsonObject) -> bytes:
    """One job in full, its result beside it. What retention takes meanwhile is written as the list showed it."""
    job_id, job, result = summary["job_id"], summary, None
    try:
        job = admin.ask(calls.get(job_id))
        if not job.get("counts") and (job.get("superseded_from") or job["status"]) == "completed":
            found = calls.read_result(admin.exchange.send(calls.result(job_id)))
            result = {"content_type": found.content_type, "body": base64.b64encode(found.content).decode()}
    except GatewayError as error:
        if error.code not in GONE:
            raise
    return msgspec.json.encode({"job": {**job, "result": None}, "result": result}) + b"\n"


def _forget(admin: Operator, job_id: str) -> bool:
    """Whether the job is gone. A group that was retried stays while the one in its place is kept."""
    try:
        admin.exchange.send(calls.delete(job_id))
    except GatewayError as error:
        if error.code == "JOB_STATE_CONFLICT":
            return False
        if error.code not in GONE:
            raise
    return True
