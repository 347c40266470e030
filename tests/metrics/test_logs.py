"""Logs: one JSON line each, no secrets, and never in the way of the loop."""

import json
import logging
import os
import pty
from pathlib import Path

import pytest

from gateway.logs import MASK, LineWriter, configure_logs, get_logger

LONG_S = 60.0
"""A bound that no test reaches: the writer ends when it has written all."""


@pytest.fixture
def file(tmp_path):
    with (tmp_path / "log").open("w+") as stream:
        yield stream


def logged(stream) -> list[dict]:
    stream.seek(0)
    return [json.loads(line) for line in stream.read().splitlines()]


def test_line_is_json_with_what_was_bound(file) -> None:
    """A line carries instant, level, logger, event and the caller's trace and job ids (AT-8)."""
    with configure_logs(file, clock=lambda: 0, flush_s=LONG_S):
        get_logger("gateway.test").bind(trace_id="t", job_id="j").info("job created", size=3)
    assert logged(file) == [
        {
            "ts": "1970-01-01T00:00:00.000Z",
            "level": "info",
            "logger": "gateway.test",
            "event": "job created",
            "trace_id": "t",
            "job_id": "j",
            "size": 3,
        }
    ]


def test_logger_made_before_takes_up_the_configuration(file) -> None:
    """Loggers of modules are made at import; what counts is the configuration at the call."""
    log = get_logger("early")
    with configure_logs(file, flush_s=LONG_S):
        log.warning("now")
    assert [entry["event"] for entry in logged(file)] == ["now"]


def test_level_is_the_lowest_that_is_written(file) -> None:
    """Lines below the level are left out."""
    with configure_logs(file, level=logging.WARNING, flush_s=LONG_S):
        get_logger("x").info("no")
        get_logger("x").warning("yes")
    assert [entry["event"] for entry in logged(file)] == ["yes"]


@pytest.mark.parametrize(
    "name",
    ["authorization", "Authorization", "api_key", "x-api-key", "X_API_KEY", "token", "Cookie", "secret"],
)
def test_secrets_are_masked_at_any_depth(file, name) -> None:
    """The value under a credential's name is written nowhere (GW-3)."""
    with configure_logs(file, flush_s=LONG_S):
        get_logger("x").warning("e", **{name: "s3cr3t"}, headers={name: "s3cr3t"}, all=[{name: ["s3cr3t"]}])
    (entry,) = logged(file)
    assert "s3cr3t" not in json.dumps(entry)
    assert (entry[name], entry["headers"][name], entry["all"][0][name]) == (MASK, MASK, MASK)


def test_foreign_loggers_go_the_same_way_from_warning_on(file) -> None:
    """The standard library's logging ends in the same lines; its INFO does not; a broken call hurts nobody."""
    foreign = logging.getLogger("hypercorn.error")
    with configure_logs(file, flush_s=LONG_S) as writer:
        foreign.info("chatter")
        foreign.warning("bad %s", "peer")
        broken = foreign.makeRecord("x", logging.ERROR, "f", 1, "two %s %s", ("one",), None)
        logging.getLogger().handlers[-1].handle(broken)
    (entry,) = (entry for entry in logged(file) if entry["event"] != "log lines dropped")
    assert (entry["event"], entry["level"], entry["logger"]) == ("bad peer", "warning", "hypercorn.error")
    assert writer.dropped == 1


def test_exception_is_written_with_its_traceback_and_without_local_variables(file) -> None:
    """A defect's line holds the traceback, and no values of variables (GW-3)."""
    with configure_logs(file, flush_s=LONG_S):
        _fail_and_log("s3cr3t")
    (entry,) = logged(file)
    assert "broken6" in entry["exception"]
    assert "s3cr3t" not in json.dumps(entry)


def _fail_and_log(key: str) -> None:
    try:
        int(f"broken{len(key)}")
    except ValueError:
        get_logger("x").exception("defect")


def test_terminal_gets_the_console_form() -> None:
    """On a TTY a line is for people: not JSON, and tracebacks without the values of variables."""
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream, configure_logs(stream, flush_s=LONG_S):
        _fail_and_log("s3cr3t")
    text = os.read(controller, 65_536).decode()
    os.close(controller)
    assert "defect" in text
    assert not text.startswith("{")
    assert "broken6" in text
    assert "s3cr3t" not in text


def test_text_that_is_no_unicode_is_written(file) -> None:
    """A lone surrogate, as a header may hold it, breaks no log call."""
    with configure_logs(file, flush_s=LONG_S):
        get_logger("x").warning("e", path="\udcff")
    assert logged(file)[0]["path"] == "\udcff"


def test_reader_that_never_reads_blocks_no_log_call() -> None:
    """With a full pipe and a full queue, log calls return, and what did not fit is counted and told later."""
    reader, end = os.pipe()
    writer = LineWriter(end, capacity=10)
    writer.start()
    for _ in range(1000):
        writer.put("x" * 1000)  # a pipe holds 64 KiB: the thread is stuck long before the last
    assert writer.dropped >= 1000 - 10 - 64 - 10 * 65
    writer.close(flush_s=0)
    assert writer._thread.is_alive()
    received = b""
    while b"dropped" not in received:
        received += os.read(reader, 65_536)
    os.close(reader)
    writer._thread.join()
    os.close(end)


def test_log_call_under_a_blocked_pipe_returns() -> None:
    """Leaving the block waits for a stuck reader no longer than it is told."""
    reader, end = os.pipe()
    with os.fdopen(end, "w") as stream:
        with configure_logs(stream, flush_s=0) as writer:
            for number in range(200):
                get_logger("x").warning("e", number=number, pad="x" * 1000)
        assert writer._thread.is_alive()
        os.close(reader)
        writer._thread.join()
    assert writer.dropped


def test_descriptor_that_takes_nothing_is_counted() -> None:
    """A closed or full stderr costs its lines, never the process."""
    with Path("/dev/full").open("w") as stream, configure_logs(stream, flush_s=LONG_S) as writer:
        get_logger("x").warning("lost")
    assert writer.dropped == 1


def test_configuration_ends_with_the_block(file) -> None:
    """Afterwards foreign logging is as it was."""
    before = list(logging.getLogger().handlers)
    with configure_logs(file, flush_s=LONG_S):
        assert logging.getLogger().handlers != before
    assert logging.getLogger().handlers == before
