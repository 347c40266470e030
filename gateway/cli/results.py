"""What became of each file of a submit: lines and JSON, results in files."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import trio
from msgspec import Struct

from gateway.cli.shown import cell
from gateway.client import AsyncClient, Job, Options

SUFFIXES: Final = {"application/json": ".json", "text/plain": ".txt", "application/pdf": ".pdf"}


class Wish(Struct, frozen=True, kw_only=True):
    """What is to be done with the files."""

    options: Options
    form: bool | None
    waits: bool
    out: Path | None


class Done(Struct, frozen=True, kw_only=True):
    """What became of one file."""

    file: str
    job_id: str | None = None
    status: str | None = None
    result: str | None = None
    """Where its result was written."""
    error: str | None = None

    @property
    def refused(self) -> bool:
        """Whether it did not come to what was asked for."""
        return self.error is not None


def why(job: Job) -> str:
    """Why a job that has ended did not complete."""
    return f"{job.problem.detail} ({job.problem.code})" if job.problem is not None else f"it is {job.status}"


async def fetch(client: AsyncClient, job_id: str, path: Path) -> Path:
    """Write a result to its file: whole, or not at all.

    Args:
        client: of the gateway.
        job_id: a completed job.
        path: of the file, without the suffix that its type gives.

    Raises:
        GatewayError, OSError: there is no file.
    """
    result = await client.result(job_id)
    media_type = result.content_type.partition(";")[0].strip().lower()
    path = path.with_name(path.name + SUFFIXES.get(media_type, ".bin"))
    await trio.to_thread.run_sync(_write, path, result.content)
    return path


def _write(path: Path, content: bytes) -> None:
    # The name for the time being is a short one: that of the file may be as long as a name can be.
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".part", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink()
            raise


def legible(path: str | Path) -> str:
    """A path as text; bytes of it that are no UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def result_names(files: Sequence[Path]) -> list[str]:
    """A name for each file's result; files of the same name in different folders are numbered, past names that others have."""
    own = [Path(legible(file.name)) for file in files]
    taken = {name.name for name in own}
    numbers: dict[str, int] = {}
    names = []
    for name in own:
        chosen, number = name.name, numbers.get(name.name, 0) + 1
        while number > 1 and (chosen := f"{name.stem}-{number}{name.suffix}") in taken:
            number += 1
        numbers[name.name] = number
        taken.add(chosen)
        names.append(chosen)
    return names


def done_line(done: Done) -> None:
    """One file in words. Why it failed stands in the summary at the end."""
    words = [cell(done.job_id), cell(done.status), cell(done.file)]
    if done.result is not None:
        words.append(f"-> {cell(done.result)}")
    click.echo("  ".join(words))


def summary(ended: Sequence[Done], *, total: int) -> None:
    """How many came to nothing, and why each, or once why all; on stderr, nothing when none did.

    Args:
        ended: the files that came to nothing.
        total: of all files.
    """
    if not ended:
        return
    reasons = {done.error for done in ended}
    if len(ended) == total > 1 and len(reasons) == 1:
        click.echo(f"{total} of {total} files failed: {cell(*reasons)}", err=True)
        return
    click.echo(f"{len(ended)} of {total} files failed:", err=True)
    for done in ended:
        click.echo(f"  {cell(done.file)}: {cell(done.error)}", err=True)
