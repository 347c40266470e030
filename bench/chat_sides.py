"""What P1 compares: our proxy, two others, and the ceiling; each is one process on a core of its own.

LiteLLM and Portkey come in environments of their own (.venvs/litellm, .venvs/portkey), exact versions. Neither keeps an
audit here or bounds what it sends upstream. LiteLLM refuses to start without a master key: it gets one for the turn.
"""

import secrets
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bench.client import Connection
from bench.ours import Gateway, Ours
from bench.processes import ROOT, Child, free_port, running, until

SERVER_CORE, LOAD_CORE = 0, 1
"""Where whoever is measured runs; where the load, the stub and a redis-server do."""
ON_ITS_CORE = ("taskset", "-c", str(SERVER_CORE))
SLOTS = 64
OURS = """
  - name: stub
    type: llm
    class: on_prem
    endpoints: [{{url: "{upstream}", slots: {slots}}}]
    models: [stub]
"""
LITELLM = """
model_list:
  - model_name: stub
    litellm_params: {{model: openai/stub, api_base: "{upstream}/v1", api_key: none}}
"""
LITELLM_PYTHON = str(ROOT / ".venvs/litellm/bin/python")
PORTKEY = str(ROOT / ".venvs/portkey/node_modules/@portkey-ai/gateway/build/start-server.js")


@dataclass(frozen=True)
class Running:
    """A side that takes requests."""

    url: str
    child: Child
    headers: Mapping[str, str] = field(default_factory=dict)
    """Beside the type."""
    gateway: Gateway | None = None
    """Ours alone: it has an audit to look at."""


OpenSide = Callable[[Path, str], AbstractAsyncContextManager[Running]]
"""Takes an empty folder and the URL of the stub."""


def ours(store: Literal["local", "redis"]) -> Ours:
    """Our proxy, with audit and metrics; its redis-server, if it has one, is its own."""
    return Ours(store, python=(*ON_ITS_CORE, sys.executable), upstreams=OURS)


def opening(side: Ours) -> OpenSide:
    """How a side of `ours` is opened."""

    @asynccontextmanager
    async def open_ours(folder: Path, upstream: str) -> AsyncIterator[Running]:
        async with side.open(folder, upstream, SLOTS) as live:
            yield Running(live.url, live.child, gateway=live)

    return open_ours


@asynccontextmanager
async def open_litellm(folder: Path, upstream: str) -> AsyncIterator[Running]:
    """LiteLLM's proxy with one worker."""
    config, port, key = folder / "litellm.yaml", free_port(), "sk-" + secrets.token_hex(32)
    config.write_text(LITELLM.format(upstream=upstream))
    command = [
        *("env", "-u", "PYTHONPATH", f"LITELLM_MASTER_KEY={key}", "LITELLM_LOCAL_MODEL_COST_MAP=True"),
        *(
            "LITELLM_LOG=ERROR",
            *ON_ITS_CORE,
            LITELLM_PYTHON,
            "-c",
            "from litellm import run_server; run_server()",
        ),
        *("--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"),
        *("--telemetry", "False"),
    ]
    async with running("litellm", command, folder) as child:
        await until(lambda: _listens(child, port))
        yield Running(f"http://127.0.0.1:{port}", child, {"Authorization": f"Bearer {key}"})


@asynccontextmanager
async def open_portkey(folder: Path, upstream: str) -> AsyncIterator[Running]:
    """Portkey's gateway; where it sends a request stands in the request's headers."""
    port = free_port()
    command = ["env", "NODE_ENV=production", *ON_ITS_CORE, "node", PORTKEY, f"--port={port}", "--headless"]
    headers = {
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"{upstream}/v1",
        "Authorization": "Bearer none",
    }
    async with running("portkey", command, folder) as child:
        await until(lambda: _listens(child, port))
        yield Running(f"http://127.0.0.1:{port}", child, headers)


async def _listens(child: Child, port: int) -> bool:
    child.expect_alive()
    connection = Connection(f"http://127.0.0.1:{port}")
    try:
        await connection.get("/")
    except ConnectionRefusedError:
        return False
    connection.close()
    return True


@asynccontextmanager
async def open_hello(folder: Path, _upstream: str) -> AsyncIterator[Running]:
    """The ceiling: no proxy at all."""
    port = free_port()
    command = [*ON_ITS_CORE, sys.executable, "-m", "bench.hello", str(port)]
    async with running("hello", command, folder, "Running on") as child:
        yield Running(f"http://127.0.0.1:{port}", child)


HELLO, LOCAL, REDIS, LITELLM_NAME, PORTKEY_NAME = (
    "hello",
    "sluicegate",
    "sluicegate+redis",
    "LiteLLM",
    "Portkey",
)
SIDES: Mapping[str, OpenSide] = {
    HELLO: open_hello,
    LOCAL: opening(ours("local")),
    REDIS: opening(ours("redis")),
    LITELLM_NAME: open_litellm,
    PORTKEY_NAME: open_portkey,
}
"""By their names, in the order of their turns."""
