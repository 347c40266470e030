"""`sluicegate submit` against a running gateway."""

import os
import sys
from contextlib import asynccontextmanager

import pytest
import trio
from command_line import ROOT, sluicegate
from gateway_process import PATIENCE_S, running, write_config

from adapters.testing.scripts import answer
from adapters.testing.stub import open_stub_upstream


@asynccontextmanager
async def serving(folder, *plays, slots=4):
    async with (
        open_stub_upstream(*plays) as stub,
        running(write_config(folder, stub.url, slots=slots), folder / "log") as gateway,
    ):
        yield stub, gateway


def documents(folder, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(name.encode())


async def test_process_submit_waits_and_writes_results(tmp_path):
    """Several files are one group; with --out each result is written under the file's name, whole, and the exit code is 0
    (GW-14)."""
    async with serving(tmp_path, answer(b'{"text": "ok"}')) as (stub, gateway):
        files = ["a/scan.png", "b/scan.png", "input.json"]
        documents(tmp_path, *files)
        ended = await sluicegate(
            "submit", *files, "--model", "stub", "--out", "results", "--max-parallel", "2",
            gateway=gateway, cwd=tmp_path,
        )  # fmt: skip
    assert ended.code == 0, ended
    lines = {line["file"]: line for line in ended.lines()}
    assert set(lines) == set(files)
    assert {line["status"] for line in lines.values()} == {"completed"}
    [group] = {line["job_id"].partition(".")[0] for line in lines.values()}
    assert [lines[file]["job_id"] for file in files] == [f"{group}.{n}" for n in range(3)]
    results = {path.name for path in (tmp_path / "results").iterdir()}
    assert results == {"scan.png.json", "scan-2.png.json", "input.json.json"}
    assert all(path.read_bytes() == b'{"text": "ok"}' for path in (tmp_path / "results").iterdir())
    assert sorted(request.body for request in stub.requests) == [name.encode() for name in files]


async def test_process_submit_one_file_is_a_job(tmp_path):
    """One file is a job, with --max-parallel a group of one; both write the same result."""
    async with serving(tmp_path, answer(b'{"text": "ok"}')) as (_, gateway):
        documents(tmp_path, "scan.png")
        for more, dot in (([], False), (["--max-parallel", "1"], True)):
            ended = await sluicegate(
                "submit", "scan.png", "--model", "stub", "--out", "out", *more, gateway=gateway, cwd=tmp_path
            )
            [line] = ended.lines()
            assert (ended.code, line["status"], line["result"]) == (0, "completed", "out/scan.png.json")
            assert ("." in line["job_id"]) is dot


async def test_process_submit_does_not_wait_unless_asked(tmp_path):
    """Without --wait a submit is done once the job, or the group, is accepted."""
    async with serving(tmp_path, answer(b"{}")) as (_, gateway):
        documents(tmp_path, "a.png", "b.png")
        ended = await sluicegate("submit", "a.png", "--model", "stub", gateway=gateway, cwd=tmp_path)
        [line] = ended.lines()
        assert (ended.code, line["status"]) == (0, "queued")
        assert line["job_id"].startswith("job_")
        ended = await sluicegate("submit", "a.png", "b.png", "--model", "stub", gateway=gateway, cwd=tmp_path)
        assert [(line["file"], line["status"]) for line in ended.lines()] == [
            ("a.png", "queued"),
            ("b.png", "queued"),
        ]


async def test_process_submit_sums_up_what_failed(tmp_path):
    """Files that fail are told with their reason and summed up at the end, and the exit code is 1; the others are done
    (GW-14)."""
    async with serving(tmp_path, answer(b"{}"), answer(b"no", status=400), answer(b"{}"), slots=1) as (
        _,
        gateway,
    ):
        documents(tmp_path, "a.png", "b.png", "c.png")
        ended = await sluicegate(
            "submit", "a.png", "b.png", "c.png", "--model", "stub", "--wait", "--max-parallel", "1",
            gateway=gateway, cwd=tmp_path,
        )  # fmt: skip
    assert ended.code == 1, ended
    lines = {line["file"]: line for line in ended.lines()}
    assert [lines[name]["status"] for name in ("a.png", "b.png", "c.png")] == [
        "completed",
        "failed",
        "completed",
    ]
    assert "UPSTREAM_4XX" in lines["b.png"]["error"]
    assert "1 of 3 files failed:\n  b.png: " in ended.err


async def test_process_submit_fail_fast(tmp_path):
    """With fail_fast what has not begun is given up when a file fails (GW-14)."""
    async with serving(tmp_path, answer(b"no", status=400), answer(b"{}"), slots=1) as (stub, gateway):
        names = [f"{n}.png" for n in range(5)]
        documents(tmp_path, *names)
        ended = await sluicegate(
            "submit", *names, "--model", "stub", "--wait", "--max-parallel", "1", "--policy", "fail_fast",
            gateway=gateway, cwd=tmp_path,
        )  # fmt: skip
    assert ended.code == 1
    statuses = {line["file"]: line["status"] for line in ended.lines()}
    assert statuses == {"0.png": "failed", **dict.fromkeys(names[1:], "cancelled")}
    assert len(stub.requests) == 1
    assert "5 of 5 files failed" in ended.err


async def test_process_submit_says_what_was_refused(tmp_path):
    """A submit that is refused is told for its files, and the exit code is 1: a bad file by its name, what concerns all of
    them for each. A file that is not there, and no model, are wrong calls."""
    async with serving(tmp_path, answer(b"{}")) as (stub, gateway):
        documents(tmp_path, "one.png", "two.png")
        (tmp_path / "empty.png").write_bytes(b"")

        async def submit(*arguments: str):
            return await sluicegate("submit", *arguments, gateway=gateway, cwd=tmp_path)

        ended = await submit("one.png", "empty.png", "two.png", "--model", "stub", "--wait")
        [line] = ended.lines()
        assert (ended.code, line["file"], "INVALID_REQUEST" in line["error"]) == (1, "empty.png", True)
        for files in (["one.png"], ["one.png", "two.png"]):
            unknown = await submit(*files, "--model", "none")
            assert unknown.code == 1
            assert [line["file"] for line in unknown.lines()] == files
            assert "no model" in unknown.out
        for wrong in (["absent.png", "--model", "stub"], ["one.png"], ["--model", "stub"]):
            usage = await submit(*wrong)
            assert (usage.code, usage.out) == (2, ""), usage
    assert not stub.requests


LONG = "k" * 245
"""With the suffix of a result it is as long as a name may be, but for five bytes."""
NAMES = {
    "new\nline.png": "new\nline.png",
    "bad\udcff.png": "bad\ufffd.png",
    "%0A.png": "%0A.png",
    LONG: LONG,
    "a/b.png": "b.png",
    "c/b.png": "b-3.png",
    "b-2.png": "b-2.png",
}
"""Files, and the names of their results."""


async def test_process_submit_takes_any_file_name(tmp_path):
    """Files whose names hold control characters or are no UTF-8, and long ones, go with the others of their group; each
    result has a file of its own, under a name that can be read and is told."""
    async with serving(tmp_path, answer(b"{}")) as (stub, gateway):
        for number, name in enumerate(NAMES):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(b"%d" % number)
        ended = await sluicegate(
            "submit", *NAMES, "--model", "stub", "--out", "out", gateway=gateway, cwd=tmp_path
        )
        assert ended.code == 0, ended
        one = ("submit", "bad\udcff.png", "--model", "stub", "--form", "--out", "one")
        alone = await sluicegate(*one, gateway=gateway, cwd=tmp_path)
    results = {line["result"] for line in ended.lines()}
    assert results == {f"out/{path.name}" for path in (tmp_path / "out").iterdir()}
    assert results == {f"out/{name}.json" for name in NAMES.values()}
    assert sorted(request.body for request in stub.requests[: len(NAMES)]) == [
        b"%d" % n for n in range(len(NAMES))
    ]
    [line] = alone.lines()
    assert (alone.code, line["file"], line["result"]) == (0, "bad\ufffd.png", "one/bad\ufffd.png.json")


@pytest.mark.parametrize(("gone", "said"), [(True, ""), (False, "stdout: No space left on device")])
@pytest.mark.parametrize("files", [["a.png"], ["a.png", "b.png", "c.png"]])
async def test_process_submit_writes_results_that_nobody_is_told_of(tmp_path, gone, said, files):
    """When stdout cannot be written, results are written all the same, and the exit code is 1: without a word when its
    reader has gone, else with the reason in one line."""
    async with serving(tmp_path, answer(b"{}")) as (_, gateway):
        documents(tmp_path, *files)
        reader, stdout = (
            os.pipe() if gone else (os.open("/dev/null", os.O_RDONLY), os.open("/dev/full", os.O_WRONLY))
        )
        os.close(reader)
        with trio.fail_after(PATIENCE_S):
            ended = await trio.run_process(
                [sys.executable, "-m", "gateway", "submit", *files, "--model", "stub", "--out", "out"],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(ROOT), "SLUICEGATE_URL": gateway.public},
                stdout=stdout,
                capture_stderr=True,
                check=False,
            )
        os.close(stdout)
    assert (ended.returncode, ended.stderr.decode().strip()) == (1, said)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"{name}.json" for name in files}


async def test_process_submit_says_a_refusal_once(tmp_path):
    """What is wrong with all files is one line of the summary, and each file's own line has it once."""
    async with serving(tmp_path, answer(b"{}")) as (_, gateway):
        documents(tmp_path, "a.png", "b.png")
        ended = await sluicegate("submit", "a.png", "b.png", "--model", "none", gateway=gateway, cwd=tmp_path)
    assert ended.code == 1
    assert [line["error"].count("no model") for line in ended.lines()] == [1, 1]
    assert ended.err.count("no model") == 1
    assert ended.err.strip().startswith("2 of 2 files failed: /model: no model 'none'")
