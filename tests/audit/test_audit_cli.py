"""`sluicegate audit`: what it reads, what it says, and how it exits."""

import json

import msgspec
import pytest
from audit_fakes import FakeSink, Stage, origin
from click.testing import CliRunner

from gateway.audit import FileSink, Refusal
from gateway.audit.event import Action
from gateway.cli import main

UPSTREAMS = """
upstreams:
  - {name: qwen, type: llm, class: on_prem, endpoints: [{url: "http://qwen", slots: 1}], models: [qwen]}
"""
REFUSAL = Refusal(error_code="UNAUTHENTICATED", http_status=401, trace_id="t", tenant="acme")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.jsonl"


@pytest.fixture
def config(tmp_path, path):
    made = tmp_path / "gateway.yaml"
    made.write_text(
        f"audit: {{sinks: [{{type: file, path: {path}}}], spool_dir: spool, chain_key_env: CHAIN}}\n{UPSTREAMS}"
    )
    return made


def run(*arguments, **environ: str):
    return CliRunner().invoke(main, ["audit", *map(str, arguments)], env={"CHAIN": "k", **environ})


def ids(output: str) -> list[str]:
    return [json.loads(line)["event_id"] for line in output.splitlines()]


async def write(tmp_path, *emit, sinks=None, max_bytes: int = 10**6) -> None:
    """One life of an emitter over a file sink; each of `emit` gets the stage."""
    file = FileSink(tmp_path / "audit.jsonl", max_bytes=max_bytes, keep=10, chain_key=b"k")
    stage = Stage(tmp_path, *(sinks or [file]))
    async with stage.emitter.running():
        for call in emit:
            call(stage)
    stage.spool.close()


def job(number: int, **members):
    return lambda stage: stage.emitter.job_ended(
        stage.job(number, finished_at=1_700_000_000_000 + number, **members)
    )


@pytest.fixture
async def written(tmp_path, path):
    await write(tmp_path, *map(job, range(1, 6)), max_bytes=3000)
    return path


async def spooled(tmp_path, *numbers: int) -> None:
    """Events that a dead sink left in the spool, and no file has."""
    sink = FakeSink()
    sink.failures = 10**9
    await write(tmp_path, *map(job, numbers), sinks=[sink])


async def test_tail_shows_the_last_events_over_segments(written) -> None:
    """The last N in order, also when they stand in closed segments; JSON lines where there is no terminal."""
    assert written.with_name("audit.jsonl.1").exists()
    assert ids(run("tail", "--file", written, "-n", 4).output) == [f"job_{n}.2" for n in (2, 3, 4, 5)]
    assert ids(run("tail", "--file", written).output) == [f"job_{n}.2" for n in (1, 2, 3, 4, 5)]
    assert run("tail", "--file", written, "-n", 0).output == ""


async def test_tail_shows_what_is_in_the_spool_alone(tmp_path, written, config) -> None:
    """With a configuration the spool is read too, each event once, by the instant of the event."""
    await spooled(tmp_path, 6, 3, 7)
    assert ids(run("tail", "--config", config, "-n", 3).output) == ["job_5.2", "job_6.2", "job_7.2"]
    assert ids(run("tail", "--config", config).output) == [f"job_{n}.2" for n in range(1, 8)]


async def test_tail_is_a_table_on_a_terminal(written, monkeypatch) -> None:
    """People get columns, and JSON when they ask for it; nothing a terminal would obey gets through."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True)
    text = written.read_text().replace('"model":"paddle"', '"model":"pad\\u001b[31mdle"')
    written.write_text(text)
    head, row = run("tail", "--file", written, "-n", 1).output.splitlines()
    assert head.split() == ["TIME", "TENANT", "WHAT", "MODEL", "STATUS", "HTTP", "MS", "EVENT"]
    assert row.split()[1:4] == ["acme", "ocr", "pad?[31mdle"]
    assert row.split()[-1] == "job_5.2"
    assert ids(run("tail", "--file", written, "-n", 1, "--json").output) == ["job_5.2"]


async def test_tail_follows_over_a_rotation(tmp_path, written, monkeypatch) -> None:
    """With -f lines are shown as they come, once each, also those behind a rotation, until Ctrl-C."""
    await write(tmp_path, job(6))
    line = written.read_bytes().splitlines(keepends=True)[-1]

    def append(number: int, part: slice = slice(None)):
        with written.open("ab") as file:
            file.write(line.replace(b"job_6.2", b"job_%d.2" % number)[part])

    def rotate():
        append(9)
        written.replace(written.with_name("audit.jsonl.1"))
        append(10)

    def interrupt():
        raise KeyboardInterrupt

    steps = [
        lambda: append(7), lambda: append(8, slice(0, 30)), lambda: append(8, slice(30, None)), rotate, interrupt,
    ]  # fmt: skip
    monkeypatch.setattr("gateway.audit.reading.time.sleep", lambda seconds: steps.pop(0)())
    result = run("tail", "--file", written, "-n", 1, "-f")
    assert ids(result.output) == [f"job_{n}.2" for n in (6, 7, 8, 9, 10)]
    assert result.exit_code == 0


@pytest.mark.parametrize("wanted", ["job_3.2", "job_3"])
async def test_show_finds_an_event_by_its_id_and_by_its_job(written, wanted) -> None:
    """The event is printed with its bodies decompressed: JSON parsed, text as text."""
    result = run("show", "--file", written, wanted)
    event = json.loads(result.output)
    assert (event["event_id"], event["request"]["body"], event["response"]["body"]) == ("job_3.2", "doc", {})


async def test_show_finds_what_was_done_to_a_job(tmp_path, written) -> None:
    """Actions on a job are shown beside its event."""
    await write(
        tmp_path, lambda stage: stage.emitter.action(Action(action="cancel", actor="ops", target="job_3"))
    )
    result = run("show", "--file", written, "job_3")
    assert '"action": "cancel"' in result.output
    assert '"job_3.2"' in result.output


async def test_show_finds_what_is_in_the_spool(tmp_path, written, config) -> None:
    """An event that no file has yet is found in the spool, and one that both have is shown once."""
    await spooled(tmp_path, 3, 9)
    assert json.loads(run("show", "--config", config, "job_9").output)["event_id"] == "job_9.2"
    assert json.loads(run("show", "--config", config, "job_3").output)["event_id"] == "job_3.2"


async def test_show_writes_a_body_as_it_was(tmp_path, path) -> None:
    """--body writes the bytes and nothing else; without it a binary body is described."""
    raw = bytes(range(256))

    def binary(stage):
        payload = stage.payloads.keep("b", raw)
        stage.emitter.job_ended(msgspec.structs.replace(stage.job(1), payload=payload))

    await write(tmp_path, binary)
    result = run("show", "--file", path, "job_1", "--body", "request")
    assert (result.stderr, result.stdout_bytes) == ("", raw)
    assert (
        "256 bytes that are no text"
        in json.loads(run("show", "--file", path, "job_1").output)["request"]["body"]
    )


async def test_show_says_what_it_does_not_find(tmp_path, written) -> None:
    """An unknown id and a body that was not quoted are told, with exit code 1."""
    result = run("show", "--file", written, "job_99")
    assert (result.exit_code, "no event of 'job_99'" in result.stderr) == (1, True)
    await write(tmp_path, lambda stage: stage.emitter.refused(REFUSAL))
    result = run("show", "--file", written, origin().new_id(), "--body", "response")
    assert (result.exit_code, "is not quoted" in result.stderr) == (1, True)


async def test_verify_walks_all_segments(written, config) -> None:
    """A whole chain exits with 0 and tells its numbers and the hash of its last line."""
    result = run("verify", "--config", config)
    assert result.exit_code == 0
    assert "5 lines, 1 to 5, in order" in result.output
    assert run("verify", "--file", written, "--chain-key-env", "CHAIN").output == result.output


async def test_verify_names_the_first_broken_line(written, config) -> None:
    """Tampering exits with 1 and names segment and line (GW-13)."""
    closed = written.with_name("audit.jsonl.1")
    closed.write_bytes(closed.read_bytes().replace(b'"tenant":"acme"', b'"tenant":"evil"', 1))
    result = run("verify", "--config", config)
    assert result.exit_code == 1
    assert "broken at audit.jsonl.1:1" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tail"], "either --config or --file"),
        (["tail", "--config", "a", "--file", "b"], "either --config or --file"),
        (["show", "--config", "missing.yaml", "x"], "cannot read missing.yaml"),
        (["verify", "--file", "a", "--chain-key-env", "UNSET"], "the environment variable UNSET is not set"),
    ],
)
def test_misuse_exits_with_2(arguments, message) -> None:
    """A wrong call or configuration is told and exits with 2."""
    result = run(*arguments)
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_missing_chain_key_of_the_configuration_exits_with_2(config) -> None:
    """Without its key a chain cannot be verified, and nothing is said about it."""
    result = run("verify", "--config", config, CHAIN="")
    assert (result.exit_code, "CHAIN is not set" in result.stderr) == (2, True)


@pytest.mark.parametrize("command", [["tail"], ["tail", "-f"], ["show", "x"], ["verify"]])
def test_missing_file_exits_with_1(path, command) -> None:
    """A file that is not there is named."""
    result = run(*command, "--file", path)
    assert (result.exit_code, "audit.jsonl" in result.stderr) == (1, True)
