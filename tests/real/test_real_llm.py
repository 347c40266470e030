"""A real service with the OpenAI routes behind the gateway: llama.cpp, whose model `make test-real` installs."""

import json
import os
import socket
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import openai
import pytest
import trio
from gateway_process import PATIENCE_S, audit_events, running, until_all_done
from llm_gateway import Official, write_config

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("SLUICEGATE_LLM_PYTHON", str(ROOT / ".venvs/llm/bin/python"))
SERVER = Path(__file__).with_name("llm_server.py")
MESSAGES = [{"role": "user", "content": "Say hello."}]

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not Path(PYTHON).exists(), reason=f"{PYTHON} is absent; `make test-real` builds the environment"
    ),
]


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


async def until_loaded(url, process):
    """Return when the model answers; before that the server says 503, or nothing."""
    with trio.fail_after(2 * PATIENCE_S):
        async with httpx2.AsyncClient(trust_env=False) as client:
            while process.returncode is None:
                try:
                    if (await client.get(f"{url}/health")).status_code == 200:
                        return
                except httpx2.TransportError:
                    pass  # it does not listen yet
                await trio.sleep(0.05)
    raise AssertionError(f"llama.cpp ended with {process.returncode}")


@asynccontextmanager
async def llama(folder):
    """The URL of a server with its model loaded."""
    port = free_port()
    with (folder / "llama.log").open("wb") as log:
        process = await trio.lowlevel.open_process(
            [PYTHON, str(SERVER), str(port)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        await until_loaded(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        with trio.CancelScope(shield=True), trio.move_on_after(10):
            await process.wait()


async def test_real_llm_with_the_official_client(tmp_path):
    """The official client chats, streams and gets errors from llama.cpp through the gateway; usage is audited (GW-18)."""
    async with llama(tmp_path) as url, running(write_config(tmp_path, url), tmp_path / "log") as gateway:
        official = Official(gateway)

        def chat(client, **more):
            return client.chat.completions.create(
                model="house-model", messages=MESSAGES, max_tokens=12, temperature=0, **more
            )

        try:
            answer = await official.does(chat)
            asked = {"stream": True, "stream_options": {"include_usage": True}}
            chunks = await official.does(lambda client: list(chat(client, **asked)))
            models = await official.does(lambda client: [model.id for model in client.models.list()])
            with pytest.raises(openai.APIStatusError) as refused:
                await official.does(lambda client: client.embeddings.create(model="house-model", input="a"))
        finally:
            official.close()
        gateway.signal(15)
        assert await gateway.ended() == 0
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert answer.choices[0].message.content == said != ""
    assert len(chunks) > 3, "word by word"
    assert models == ["house-model"]
    assert refused.value.body["message"], "the service's own words"
    whole, stream, embed = audit_events(tmp_path)
    assert whole["usage"]["output_tokens"] == answer.usage.completion_tokens
    assert stream["usage"] == whole["usage"]
    assert (embed["operation"], embed["http_status"]) == ("embed", refused.value.status_code)


async def test_real_llm_job(tmp_path):
    """A chat as a job of llama.cpp has its answer as the result, and its usage in the audit event (GW-18)."""
    async with (
        llama(tmp_path) as url,
        running(write_config(tmp_path, url, more="async: true"), tmp_path / "log") as gateway,
        gateway.client() as client,
    ):
        document = {"messages": MESSAGES, "max_tokens": 8}
        response = await client.post("/jobs", json={"model": "house-model", "input": document})
        [job] = await until_all_done(client, [response.json()["job_id"]])
        result = json.loads((await client.get(f"/jobs/{job['job_id']}/result")).content)
        gateway.signal(15)
        assert await gateway.ended() == 0
    assert job["status"] == "completed", job["problem"]
    assert result["choices"][0]["message"]["content"]
    [event] = audit_events(tmp_path)
    assert event["usage"]["input_tokens"] == result["usage"]["prompt_tokens"]
    assert event["usage"]["output_tokens"] == result["usage"]["completion_tokens"]
