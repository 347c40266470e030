"""Logs: JSON lines on stderr, the console form on a terminal.

Rules of this file:
- A log call never waits for whoever reads the log. Lines go to a bounded queue; one thread of our own writes them.
  When the queue is full, lines are dropped and counted, and the count is logged once there is room again.
- Foreign logging (Hypercorn, Quart, the standard library) goes the same way, from WARNING on.
- Values under a name that holds a credential are masked; see `SECRET_NAMES`.
- Bytes go to the file descriptor itself. A thread that is stuck in a buffered stream holds its lock, and Python
  aborts when it cannot take that lock at exit.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from gateway.clock import WallClock, rfc3339, wall_clock

SECRET_NAMES: Final = frozenset(
    {
        "api-key",
        "authorization",
        "cookie",
        "ocp-apim-subscription-key",
        "password",
        "proxy-authorization",
        "secret",
        "set-cookie",
        "token",
        "x-api-key",
    }
)
"""Names whose value is masked, at any depth; case and the difference of `_` and `-` do not count."""
MASK: Final = "***"

QUEUED_LINES: Final = 10_000
"""Lines that wait for the writer; some megabytes, and seconds of the worst chatter."""
FLUSH_S: Final = 1.0
"""How long leaving `configure_logs` waits for the last lines."""


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry `logger: name`. It takes up whatever is configured when it is used."""
    return cast("FilteringBoundLogger", structlog.get_logger(name))


class LineWriter:
    """A bounded queue of lines and the thread that writes them to a file descriptor.

    Args:
        fd: where to write; may block for ever.
        capacity: lines that may wait.
    """

    def __init__(self, fd: int, capacity: int = QUEUED_LINES) -> None:
        self._fd = fd
        self._capacity = capacity
        self._lines: deque[str] = deque()
        self._closing = False
        self._changed = threading.Condition()
        self.dropped = 0
        """Lines that never reached the descriptor."""
        # A daemon: a reader that never reads must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="log writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, line: str) -> None:
        """Queue a line, or drop it when the queue is full. Safe from any thread; never waits for the reader."""
        with self._changed:
            if len(self._lines) >= self._capacity:
                self.dropped += 1
                return
            self._lines.append(line)
            self._changed.notify()

    def drop(self) -> None:
        """Count a line that could not be made."""
        with self._changed:
            self.dropped += 1

    def close(self, flush_s: float = FLUSH_S) -> None:
        """Write what is queued, for at most `flush_s` seconds; then leave the thread to its fate."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(flush_s)

    def _run(self) -> None:
        told = 0
        while lines := self._take():
            if not self._write(lines):
                with self._changed:
                    self.dropped += len(lines)
            elif (dropped := self.dropped) > told:
                count = dropped - told
                self._write([f'{{"level": "warning", "event": "log lines dropped", "count": {count}}}'])
                told = dropped

    def _take(self) -> list[str]:
        """Everything that waits; nothing once closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closing)
            lines = list(self._lines)
            self._lines.clear()
            return lines

    def _write(self, lines: list[str]) -> bool:
        """Whether the descriptor took the lines. When not, nobody is left to tell: the place for errors failed."""
        rest = memoryview(("\n".join(lines) + "\n").encode("utf-8", "backslashreplace"))
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            return False
        return True


@contextmanager
def configure_logs(
    stream: TextIO,
    *,
    level: int = logging.INFO,
    clock: WallClock = wall_clock,
    flush_s: float = FLUSH_S,
) -> Iterator[LineWriter]:
    """Send all logging of the process to `stream` inside the block.

    Args:
        stream: must have a file descriptor; what it buffered itself is flushed first.
        level: lowest level of our own lines, as in `logging`.
        clock: gives the instants of the lines.
        flush_s: how long leaving the block waits for the last lines, in seconds.
    """
    stream.flush()
    writer = LineWriter(stream.fileno())
    writer.start()
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        _Timestamp(clock),
        mask_secrets,
    ]
    ending = _console() if stream.isatty() else _json()
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *name: _Output(writer, *name),
        cache_logger_on_first_use=False,
    )
    try:
        with _foreign_logging(writer, shared, ending):
            yield writer
    finally:
        structlog.reset_defaults()
        writer.close(flush_s)


def _json() -> list[Processor]:
    # The library's JSON keeps to ASCII, so a lone surrogate in a header cannot break a log call.
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _console() -> list[Processor]:
    # The default formatter of exceptions prints the local variables: documents and keys.
    return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]


class _Timestamp:
    """Adds `ts`."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock

    def __call__(
        self, _logger: object, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        event["ts"] = rfc3339(self._clock())
        return event


def mask_secrets(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask the values of `SECRET_NAMES` in a line, at any depth."""
    for key, value in event.items():
        event[key] = _masked(key, value)
    return event


@lru_cache(maxsize=1024)
def _is_secret(key: str) -> bool:
    """Whether a name is that of a credential. The names in our log calls are few."""
    return key.lower().replace("_", "-") in SECRET_NAMES


def _masked(key: object, value: object) -> object:
    if isinstance(key, str) and _is_secret(key):
        return MASK
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {inner: _masked(inner, held) for inner, held in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(None, held) for held in value]
    return value


class _Output:
    """What structlog hands finished lines to."""

    def __init__(self, writer: LineWriter, name: str = "") -> None:
        self.name = name
        self.debug = self.info = self.warning = self.error = self.critical = writer.put


class _ForeignHandler(logging.Handler):
    """Takes the records of the standard library's logging."""

    def __init__(self, writer: LineWriter, formatter: logging.Formatter) -> None:
        super().__init__(logging.WARNING)
        self._writer = writer
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record's line."""
        try:
            line = self.format(record)
        except (TypeError, ValueError):  # a foreign message that does not fit its arguments
            self._writer.drop()
        else:
            self._writer.put(line)


@contextmanager
def _foreign_logging(writer: LineWriter, shared: list[Processor], ending: list[Processor]) -> Iterator[None]:
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
    )
    handler = _ForeignHandler(writer, formatter)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
