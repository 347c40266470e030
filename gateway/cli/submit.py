"""`sluicegate submit FILE...`: one job, or a group of several files."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import click
import trio
from msgspec import structs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gateway.cli.asking import checked_url, told_briefly
from gateway.cli.exit_codes import REFUSED
from gateway.cli.results import Done, Wish, done_line, fetch, legible, result_names, summary, why
from gateway.cli.shown import Telling, is_table, json_option, show_json
from gateway.cli.submit_group import GroupSubmit, Shown
from gateway.client import AsyncClient, GatewayError, Options, Repeats
from gateway.client.calls import GroupTerms
from store.job import GroupPolicy

DEFAULT_URL: Final = "http://127.0.0.1:8080"
DEFAULT_PARALLEL: Final = 8


@click.command()
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False, readable=True),
)
@click.option("--model", help="The model; without it the operation says it.")
@click.option("--operation", help="What is to be done; without it the model says it.")
@click.option("--priority", help="interactive, batch, or a number from 0 (first) to 100.")
@click.option(
    "--form", is_flag=True, help="Send a single file as the file of a form, as those of a group are."
)
@click.option(
    "--wait", "waits", is_flag=True, help="Wait until all is done; 1 when a file was not completed."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write each result into this folder, under the file's name; waits.",
)
@click.option(
    "--max-parallel",
    type=click.IntRange(min=1),
    help=f"Files that may run at a time; makes a group of one file too.  [default: {DEFAULT_PARALLEL}]",
)
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in GroupPolicy]),
    help="What a file that fails means for the others of a group: nothing, or that they are given up.",
)
@click.option(
    "--url",
    envvar="SLUICEGATE_URL",
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="The public bind.",
)
@click.option("--tenant", help="Whose jobs, where no key says it.")
@json_option
def submit(files: tuple[Path, ...], *, as_json: bool, **given: Any) -> None:
    """Submit FILE as a job, or several as one group. The key is taken from SLUICEGATE_KEY.

    A connection that breaks, a gateway that drains and a full queue are waited out.
    """
    if given["model"] is None and given["operation"] is None:
        raise click.UsageError("expected --model or --operation")
    named = {name: given[name] for name in ("model", "operation", "priority") if given[name]}
    wish = Wish(
        options=cast("Options", named),
        form=True if given["form"] else None,
        waits=given["waits"] or given["out"] is not None,
        out=given["out"],
    )
    terms = None
    if len(files) > 1 or given["max_parallel"] or given["policy"]:
        terms = GroupTerms(given["max_parallel"] or DEFAULT_PARALLEL, given["policy"])
    if wish.out is not None:
        wish.out.mkdir(parents=True, exist_ok=True)
    asking = partial(
        AsyncClient,
        checked_url(given["url"]),
        key=os.environ.get("SLUICEGATE_KEY") or None,
        tenant=given["tenant"],
        repeats=Repeats(times=100, within_s=600.0, when_full=True),
    )
    telling = Telling(done_line if is_table(as_json=as_json) else show_json)
    failed: Sequence[Done] | None = None
    try:
        failed = trio.run(_submit, asking, files, wish, terms, telling.tell)
    except* KeyboardInterrupt:
        click.echo("stopped; what was submitted goes on", err=True)
    if failed is None or failed:
        summary(failed or (), total=len(files))
    telling.finish()
    if failed is None or failed:
        sys.exit(REFUSED)


async def _submit(
    asking: Callable[[], AsyncClient],
    files: Sequence[Path],
    wish: Wish,
    terms: GroupTerms | None,
    show_done: Callable[[Done], None],
) -> Sequence[Done]:
    """Submit the files. Those that did not come to what was asked for."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("submitting" if not wish.waits else "waiting for results", total=len(files))
        async with asking() as client:
            if terms is not None:
                shown = Shown(show_done, partial(progress.advance, bar))
                group = GroupSubmit(client, files, wish, terms, shown)
                await group.run()
                return group.failed
            done = await _one(client, files[0], wish)
    show_done(done)
    return [done] if done.refused else []


async def _one(client: AsyncClient, file: Path, wish: Wish) -> Done:
    """One file as a job, to the end that was asked for."""
    done = Done(file=legible(file))
    try:
        job = await client.submit(file, form=wish.form, **wish.options)
        done = structs.replace(done, job_id=job.job_id, status=job.status)
        if not wish.waits:
            return done
        job = await client.wait(job.job_id)
        done = structs.replace(done, status=job.status)
        if job.status != "completed":
            return structs.replace(done, error=why(job))
        if wish.out is None:
            return done
        [name] = result_names([file])
        return structs.replace(done, result=legible(await fetch(client, job.job_id, wish.out / name)))
    except GatewayError as error:
        return structs.replace(done, error=told_briefly(error))
    except OSError as error:
        return structs.replace(done, error=str(error))
