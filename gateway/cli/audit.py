"""`sluicegate audit tail|show|verify`: reads what file sinks and the spool hold, beside a running gateway or without."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import msgspec

from gateway.audit.chain import Verdict
from gateway.audit.chain import verify as verify_chain
from gateway.audit.reading import Event, Sources, end_of, find, follow, rows, unpacked
from gateway.audit.reading import tail as last_events
from gateway.audit.records import event_id_of
from gateway.config import ConfigError, Loaded, load_config
from gateway.config.schema import FileSink

REFUSED: Final = 1
USAGE: Final = 2
COLUMNS: Final = (
    ("TIME", 24), ("TENANT", 12), ("WHAT", 10), ("MODEL", 20), ("STATUS", 10), ("HTTP", 4), ("MS", 8), ("EVENT", 0),
)  # fmt: skip
"""Heads of the table and their widths; the last one is open."""

Command = Callable[..., None]


def source_options(command: Command) -> Command:
    """The two ways to say where events are."""
    from_config = click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The gateway's YAML file: its file sinks and its spool are read.",
    )
    from_file = click.option(
        "--file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The path of one file sink; its closed segments beside it are read too.",
    )
    return from_config(from_file(command))


@click.group()
def audit() -> None:
    """Read the audit stream."""


@audit.command()
@source_options
@click.option(
    "-n", "count", type=click.IntRange(min=0), default=10, show_default=True, help="How many events."
)
@click.option(
    "-f", "--follow", "is_followed", is_flag=True, help="Go on with those that come to the first file."
)
@click.option(
    "--json", "as_json", is_flag=True, help="JSON lines as they stand; so is what goes to no terminal."
)
def tail(config: Path | None, file: Path | None, count: int, *, is_followed: bool, as_json: bool) -> None:
    """Show the last events: of the first file sink, and those in the spool that are not there yet."""
    sources = _sources(config, file)
    if is_followed and not sources.files:
        _refuse("there is no file sink to follow")
    with _file_errors():
        place = end_of(sources.files[0]) if is_followed else (0, 0)
        lines = last_events(sources, count)
        is_table = not as_json and sys.stdout.isatty()
        show_line = _table_line if is_table else _json_line
        if is_table:
            click.echo("  ".join(head.ljust(width) for head, width in COLUMNS))
        for line in lines:
            show_line(line)
        if is_followed:
            shown = {event_id_of(line) for line in lines}
            _follow(sources.files[0], place, shown, show_line)


@audit.command()
@source_options
@click.argument("wanted", metavar="EVENT_OR_JOB_ID")
@click.option(
    "--body",
    type=click.Choice(["request", "response"]),
    help="Write the quoted bytes of this body and nothing else.",
)
def show(config: Path | None, file: Path | None, wanted: str, body: str | None) -> None:
    """Show the events with this id, of this job or about it, bodies decompressed."""
    with _file_errors():
        events = list(find(_sources(config, file), wanted))
    if not events:
        _refuse(f"no event of {wanted!r}: neither its id, nor its job, nor its target")
    if body is None:
        for event in events:
            click.echo(json.dumps(_with_bodies(event), indent=2, ensure_ascii=False))
        return
    quoted = [data for event in events if (data := unpacked(event.get(body))) is not None]
    if not quoted:
        _refuse(f"the {body} of {wanted!r} is not quoted in its event")
    click.echo(quoted[0], nl=False)


@audit.command()
@source_options
@click.option("--chain-key-env", help="With --file: the environment variable that holds the chain key.")
def verify(config: Path | None, file: Path | None, chain_key_env: str | None) -> None:
    """Walk the hash chain of each file sink, over all its segments.

    Names the first line that breaks it and exits with 1. What cannot be seen from the file is whether lines are gone at
    its very end: compare the last number and hash with what you noted before.
    """
    if config is not None and chain_key_env is not None:
        raise click.UsageError("--chain-key-env goes with --file; a configuration names its own key")
    if config is not None:
        chain_key_env = _load(config).config.audit.chain_key_env
    key = _key_from(chain_key_env)
    sources = _sources(config, file)
    if not sources.files:
        _refuse("there is no file sink to verify")
    is_whole = True
    for path in sources.files:
        with _file_errors():
            verdict = verify_chain(rows(path), key)
        click.echo(_told(path, verdict), err=verdict.broken is not None)
        is_whole &= verdict.broken is None
    if not is_whole:
        sys.exit(REFUSED)


def _sources(config: Path | None, file: Path | None) -> Sources:
    if (config is None) == (file is None):
        raise click.UsageError("expected either --config or --file")
    if file is not None:
        return Sources((file,))
    assert config is not None, "one of both is there"  # noqa: S101  # for the type checker
    audit_section = _load(config).config.audit
    files = [sink.path for sink in audit_section.sinks if isinstance(sink, FileSink)]
    return Sources(files, audit_section.spool_dir)


def _load(config: Path) -> Loaded:
    try:
        return load_config(config, os.environ)
    except ConfigError as error:
        _refuse(f"{config}: not a valid configuration\n{error}", USAGE)


def _told(path: Path, verdict: Verdict) -> str:
    if verdict.broken is not None:
        return f"{path}: broken at {verdict.broken.place}: it {verdict.broken.reason}"
    if verdict.first is None:
        return f"{path}: no lines"
    older = "" if verdict.first == 1 else " (older segments are gone)"
    return f"{path}: {verdict.lines} lines, {verdict.first} to {verdict.last}{older}, in order; hash of the last {verdict.head}"


def _follow(path: Path, place: tuple[int, int], shown: set[str], show_line: Callable[[bytes], None]) -> None:
    """Show what comes, until Ctrl-C."""
    try:
        for line in follow(path, *place):
            if event_id_of(line) not in shown:
                show_line(line)
                sys.stdout.flush()
    except KeyboardInterrupt:
        pass


def _json_line(line: bytes) -> None:
    click.echo(line)


def _table_line(line: bytes) -> None:
    event: Event = msgspec.json.decode(line)
    what = event.get("action") or event.get("operation")
    members = ("ts", "tenant", "", "model", "status", "http_status", "total_ms", "event_id")
    values = (event.get(member) if member else what for member in members)
    cells = (_cell(value).ljust(width) for value, (_, width) in zip(values, COLUMNS, strict=True))
    click.echo("  ".join(cells))


def _cell(value: object) -> str:
    """A value in one line; what a terminal would obey is replaced."""
    text = "-" if value is None else str(value)
    return "".join(character if character.isprintable() else "?" for character in text)


def _with_bodies(event: Event) -> Event:
    """The event with its bodies decompressed: parsed when they are JSON, else as text, else described."""
    sides = {side: body for side in ("request", "response") if (body := event.get(side))}
    return event | {side: body | {"body": _shown(body)} for side, body in sides.items()}


def _shown(body: Event) -> Any:
    data = unpacked(body)
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        pass
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"({len(data)} bytes that are no text; --body writes them)"
    return text


def _key_from(env: str | None) -> bytes | None:
    if env is None:
        return None
    key = os.environ.get(env, "").strip()
    if not key:
        _refuse(f"the environment variable {env} is not set; expected the chain key", USAGE)
    return key.encode()


@contextmanager
def _file_errors() -> Iterator[None]:
    """Tell a file that cannot be read in one line."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        _refuse(str(error))


def _refuse(message: str, code: int = REFUSED) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(code)
