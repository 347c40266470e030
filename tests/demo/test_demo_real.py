"""The demo with the real OCR engine."""

import os
import signal
import subprocess
from pathlib import Path

import httpx2
import pytest

from gateway.demo.ocr_server import running_ocr_server
from gateway.demo.reading import recognised_lines
from gateway.demo.scan import EXPECTED_LINES, FILE_NAME, MEDIA_TYPE, render_scan

pytestmark = pytest.mark.real


@pytest.fixture
def demo(rapidocr_python: str, tmp_path: Path):
    """Starts `sluicegate demo` with arguments; its temporary folder lies in `tmp_path`."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        program = "from gateway.cli import main; main()"
        environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            [rapidocr_python, "-c", program, "demo", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


async def test_real_engine_reads_every_line_of_the_scan(rapidocr_python: str, tmp_path: Path) -> None:
    """The sample scan is read without a single wrong letter."""
    async with (
        running_ocr_server(tmp_path, python=rapidocr_python) as url,
        httpx2.AsyncClient(timeout=60, trust_env=False) as client,
    ):
        files = {"image_file": (FILE_NAME, render_scan(), MEDIA_TYPE)}
        answer = (await client.post(f"{url}/ocr", files=files)).json()
    assert recognised_lines(answer) == list(EXPECTED_LINES)


def test_once_prints_text_job_and_audit_event_and_exits_0(demo, tmp_path: Path) -> None:
    """`demo --once` does the whole path and leaves nothing behind."""
    output, errors = demo("--once").communicate(timeout=120)
    assert errors == ""
    assert all(line in output for line in EXPECTED_LINES)
    assert '"status": "completed"' in output
    assert '"event_id"' in output
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_a_serving_demo_cleanly(demo, tmp_path: Path) -> None:
    """After the story the demo serves until SIGINT; then it exits 0, without a word, and leaves nothing behind."""
    process = demo()
    for line in process.stdout:
        if "/metrics" in line:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_before_the_story_is_told_exits_130(demo, tmp_path: Path) -> None:
    """SIGINT while the OCR server starts ends the demo at once and leaves nothing behind."""
    process = demo("--once")
    while not list(tmp_path.glob("*/ocr-server.log")):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")
    assert list(tmp_path.iterdir()) == []
