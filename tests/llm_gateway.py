"""A gateway process in front of a service with the OpenAI routes, and the official client in front of the gateway."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import openai
import trio
from gateway_process import PATIENCE_S, Gateway, running

T = TypeVar("T")
SERVICE_KEY = "sk-of-the-gateway"
CLIENT_KEY = "sk-of-the-client"


def write_config(folder: Path, url: str, *, model: str = "stub", more: str = "") -> Path:
    """The configuration of a gateway: `house-model` is what the service calls `model`."""
    path = folder / "gateway.yaml"
    path.write_text(
        f"""
server: {{bind: 127.0.0.1:0, admin_bind: 127.0.0.1:0, drain_timeout_s: 2}}
local: {{data_dir: data, min_free_bytes: 0}}
audit: {{sinks: [{{type: file, path: data/audit.jsonl}}]}}
upstreams:
  - name: house
    type: llm
    class: on_prem
    endpoints: [{{url: "{url}", slots: 2}}]
    models: [house-model]
    model_map: {{house-model: "{model}"}}
    {more}
"""
    )
    return path


class Official:
    """The official client, used as its documentation says; it blocks, so it has a thread."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._client = openai.OpenAI(
            base_url=f"{gateway.public}/v1", api_key=CLIENT_KEY, max_retries=0, timeout=PATIENCE_S
        )

    async def does(self, work: Callable[[openai.OpenAI], T]) -> T:
        """What the work gives; what the client raises comes out."""
        return await trio.to_thread.run_sync(work, self._client)

    def close(self) -> None:
        self._client.close()


@asynccontextmanager
async def official_client(config: Path, folder: Path) -> AsyncIterator[Official]:
    """The client of a gateway that runs for the length of the block."""
    async with running(config, folder / "log") as gateway:
        official = Official(gateway)
        try:
            yield official
        finally:
            official.close()
