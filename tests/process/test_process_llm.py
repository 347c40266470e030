"""GW-18: calls through a gateway process, on both stores: slots, stream, audit event, drain."""

import base64
import json
import signal
from pathlib import Path

import pytest
import trio
import zstandard
from gateway_process import audit_events, running, until
from redis_server import RedisServer

from adapters.testing.scripts import Gated, answer, head
from adapters.testing.stub import open_stub_upstream

ASK = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
OK = b'{"id":"c","usage":{"prompt_tokens":3,"completion_tokens":2}}'
FIRST, LAST = b"data: 1\n\n", b"data: [DONE]\n\n"


def kept_in(store: str, folder: Path, server: RedisServer) -> str:
    """The part of a configuration that names the store."""
    if store == "local":
        return "local: {data_dir: data, min_free_bytes: 0}"
    return f"coordination: redis\nredis: {{url: '{server.url}', prefix: llm-{folder.name}}}"


def write(folder: Path, kept: str, *urls: str, slots: int = 2, models: str = "[m]", more: str = "") -> Path:
    """A configuration with one llm upstream at these endpoints."""
    endpoints = ", ".join(f'{{url: "{url}", slots: {slots}}}' for url in urls)
    path = folder / "gateway.yaml"
    path.write_text(f"""
server: {{bind: 127.0.0.1:0, admin_bind: 127.0.0.1:0, drain_timeout_s: 30}}
{kept}
audit: {{sinks: [{{type: file, path: data/audit.jsonl}}]}}
upstreams:
  - {{name: llm, type: llm, class: on_prem, models: {models}, endpoints: [{endpoints}]{more}}}
""")
    return path


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize("store", ["local", "redis"])
async def test_process_llm_calls_and_drain(tmp_path: Path, store: str, shared_redis: RedisServer) -> None:
    """A call and a stream pass through a process; a drain lets the stream end, refuses others, and loses no event
    (GW-10, GW-18)."""
    kept = kept_in(store, tmp_path, shared_redis)
    begun = head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}) + chunk(FIRST)
    stream = Gated(begun, chunk(LAST) + b"0\r\n\r\n")
    async with (
        open_stub_upstream(answer(OK), stream) as stub,
        running(write(tmp_path, kept, stub.url), tmp_path / "log") as gateway,
        gateway.client() as client,
    ):
        said = await client.post("/v1/chat/completions", json=ASK)
        assert (said.status_code, said.content) == (200, OK)
        assert [each["id"] for each in (await client.get("/v1/models")).json()["data"]] == ["m"]
        stream.gates[0].set()
        async with client.stream("POST", "/v1/chat/completions", json=ASK | {"stream": True}) as streamed:
            pieces = streamed.aiter_raw()
            assert await anext(pieces) == FIRST
            gateway.signal(signal.SIGTERM)
            await until(lambda: "drain: nothing is begun any more" in gateway.log.read_text())
            refused = await client.post("/v1/chat/completions", json=ASK)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "DRAINING")
            stream.open()
            assert b"".join([piece async for piece in pieces]) == LAST
        assert await gateway.ended() == 0
    call, streamed_call = audit_events(tmp_path)
    assert (call["operation"], call["status"], call["usage"]["output_tokens"]) == ("chat", "completed", 2)
    body = zstandard.ZstdDecompressor().decompress(base64.b64decode(call["request"]["body"]))
    assert json.loads(body) == ASK
    assert (streamed_call["stream"], streamed_call["response"]["bytes"]) == (True, len(FIRST + LAST))
    assert [line for line in gateway.lines() if line["level"] == "error"] == []
    await trio.lowlevel.checkpoint()


async def test_process_llm_reload(tmp_path: Path, shared_redis: RedisServer) -> None:
    """After a reload calls go where the new configuration says, by the names that it has; a stream under way ends as it
    began, and then the old upstream's connections are closed (page 10)."""
    begun = head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}) + chunk(FIRST)
    stream = Gated(begun, chunk(LAST) + b"0\r\n\r\n")
    kept = kept_in("local", tmp_path, shared_redis)
    async with open_stub_upstream(stream) as before, open_stub_upstream(answer(OK)) as after:
        config = write(tmp_path, kept, before.url)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            stream.gates[0].set()
            async with client.stream("POST", "/v1/chat/completions", json=ASK | {"stream": True}) as streamed:
                pieces = streamed.aiter_raw()
                assert await anext(pieces) == FIRST
                write(tmp_path, kept, after.url, models="[m, n], model_map: {m: org/real}")
                reloaded = await client.post(f"{gateway.admin}/admin/reload", json={})
                assert reloaded.status_code == 200, reloaded.text
                assert (await client.post("/v1/chat/completions", json=ASK)).status_code == 200
                assert before.open_connections == 1
                stream.open()
                assert b"".join([piece async for piece in pieces]) == LAST
            names = [each["id"] for each in (await client.get("/v1/models")).json()["data"]]
            assert names == ["m", "n"]
            await until(lambda: before.open_connections == 0)
    assert len(before.requests) == 1
    assert json.loads(after.requests[0].body)["model"] == "org/real"
