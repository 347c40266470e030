"""The examples of docs/client.md, run as they stand against a gateway process."""

import os
import re
import sys
from pathlib import Path

import trio
from gateway_process import running, write_config

from adapters.testing.scripts import answer
from adapters.testing.stub import open_stub_upstream

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "client.md"
PREAMBLE = "from pathlib import Path\n"


async def test_client_every_example_of_the_page_runs(tmp_path):
    """Each Python example of docs/client.md runs against a gateway, with its address in the place of the default one."""
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) >= 5
    (tmp_path / "scan.png").write_bytes(b"\x89PNG")
    async with open_stub_upstream(answer(b'{"text": "ok"}')) as stub:
        config = write_config(tmp_path, stub.url)
        config.write_text(config.read_text().replace("models: [stub]", "models: [ocr]"))
        async with running(config, tmp_path / "log") as gateway:
            for example in examples:
                text = PREAMBLE + example.replace("http://127.0.0.1:8080", gateway.public)
                command = [sys.executable, "-c", text]
                environ = {**os.environ, "PYTHONPATH": str(ROOT)}
                ended = await trio.run_process(
                    command, cwd=tmp_path, env=environ, capture_stdout=True, capture_stderr=True, check=False
                )
                assert ended.returncode == 0, f"{example}\n{ended.stderr.decode()}"
