"""GW-18: streams are passed on as they come, byte by byte, and told as broken when they are."""

import gc
import hashlib
import json
import tracemalloc
from pathlib import Path

import pytest
import trio
from llm_world import llm, open_world, until

from adapters.testing.scripts import Gated, head, sends, sends_and_closes, sends_in_pieces
from adapters.testing.stub import Exchange, open_stub_upstream

ASK = {"model": "m", "messages": [], "stream": True}
TYPE = {"Content-Type": "text/event-stream; charset=utf-8"}
CHUNKED = head(200, TYPE | {"Transfer-Encoding": "chunked"})
CLOSING = head(200, TYPE | {"Connection": "close"})
END = b"0\r\n\r\n"
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}'


def delta(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}, ensure_ascii=False).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


EURO = delta("€")
CUT = EURO.index("€".encode()) + 1
STREAMS = {
    "usual": [delta("a") + b"\n\n", delta("b") + b"\n\n", USAGE + b"\n\n", b"data: [DONE]\n\n"],
    "a character in three segments": [
        EURO[:CUT], EURO[CUT : CUT + 1], EURO[CUT + 1 :] + b"\n\n", USAGE + b"\n\n", b"data: [DONE]\n\n"
    ],
    "CR LF": [delta("a") + b"\r\n\r\n", USAGE + b"\r\n", b"\r\n", b"data: [DONE]\r\n\r\n"],
    "comments": [b": ping\n\n", delta("a") + b"\n\n: ping\n\n", USAGE + b"\n\n", b": bye\n\n", b"data: [DONE]\n\n"],
    "two in one segment": [delta("a") + b"\n\n" + delta("b") + b"\n\n", USAGE + b"\n\ndata: [DONE]\n\n"],
    "no last blank line": [delta("a") + b"\n\n", USAGE],
    "no DONE": [delta("a") + b"\n\n", USAGE + b"\n\n"],
    "names and ids": [b"event: x\nid: 7\n" + delta("a") + b"\n\n", b"retry: 5\n\n", USAGE + b"\n\n"],
}  # fmt: skip


@pytest.mark.parametrize("framing", ["chunked", "closing"])
@pytest.mark.parametrize("name", STREAMS)
async def test_llm_stream_is_passed_on_byte_by_byte(tmp_path: Path, name: str, framing: str) -> None:
    """However a stream is written and cut into segments, the client gets its bytes, and its usage is counted (GW-18)."""
    pieces = STREAMS[name]
    if framing == "chunked":
        script = sends_in_pieces(CHUNKED, *map(chunk, pieces), END)
    else:
        script = closing(CLOSING, *pieces)
    async with open_stub_upstream(script) as stub, open_world(tmp_path, llm(stub.url)) as world:
        got = await world.ask(ASK)
        ended = await world.ended()
    whole = b"".join(pieces)
    assert (got.status, got.body, got.complete) == (200, whole, True)
    assert got.headers["content-type"] == TYPE["Content-Type"]
    assert (ended.status, ended.stream) == ("completed", True)
    assert ended.usage is not None
    assert (ended.usage.input_tokens, ended.usage.output_tokens) == (3, 2)
    assert ended.response is not None
    assert (ended.response.sha256, ended.response.size) == (hashlib.sha256(whole).hexdigest(), len(whole))


def closing(*pieces: bytes):
    play = sends_in_pieces(*pieces)

    async def play_and_close(exchange: Exchange) -> None:
        await play(exchange)
        await exchange.close()

    return play_and_close


async def test_llm_stream_comes_as_it_is_made(tmp_path: Path) -> None:
    """Head and each chunk are with the client before the upstream makes the next one (GW-18)."""
    script = Gated(CHUNKED, chunk(b"data: 1\n\n"), chunk(b"data: 2\n\n"), END)
    async with (
        open_stub_upstream(script) as stub,
        open_world(tmp_path, llm(stub.url)) as world,
        world.client() as client,
    ):
        await client.send(ASK)
        await script.arrived.wait()
        script.gates[0].set()
        await client.until(b"\r\n\r\n")
        for gate, mark in ((1, b"data: 1\n\n"), (2, b"data: 2\n\n")):
            script.gates[gate].set()
            await client.until(mark)
            assert await world.in_use() == 1
        script.gates[3].set()
        await client.until(END)
        assert (await world.ended()).status == "completed"


@pytest.mark.parametrize(
    ("sent", "gap"),
    [
        (delta("a") + b"\n\n", b""),
        (delta("a") + b"\r\n\r\n", b""),
        (delta("a")[:20], b"\n\n"),
        (delta("a") + b"\n", b"\n\n"),
        (b"", b""),
    ],
)
@pytest.mark.parametrize("how", ["in the framing", "in a chunk"])
async def test_llm_stream_that_breaks_ends_with_an_error(
    tmp_path: Path, sent: bytes, gap: bytes, how: str
) -> None:
    """An upstream that dies in the middle of a stream ends it with an error event, and the event of the audit says what
    was sent (GW-18)."""
    framed = CHUNKED + (chunk(sent) if sent else b"") + (b"" if how == "in the framing" else b"ff\r\n")
    async with (
        open_stub_upstream(sends_and_closes(framed)) as stub,
        open_world(tmp_path, llm(stub.url)) as world,
    ):
        got = await world.ask(ASK)
        ended = await world.ended()
    assert got.complete
    assert got.body.startswith(sent + gap + b"data: ")
    event = json.loads(got.body.removeprefix(sent + gap).removeprefix(b"data: "))
    assert event["error"].keys() == {"message", "type", "code"}
    assert event["error"]["code"] == "UPSTREAM_5XX"
    assert got.body.endswith(b"}\n\n")
    assert (ended.status, ended.error_kind, ended.error_code) == ("failed", "provider_5xx", "UPSTREAM_5XX")
    assert ended.response is not None
    assert (ended.response.size, ended.response.kept) == (len(sent), sent[:100])


async def test_llm_other_answer_that_breaks_is_cut(tmp_path: Path) -> None:
    """An answer that is no stream and breaks off is cut short of its length; before its first byte it is 502 (GW-18)."""
    begun = head(200, {"Content-Type": "application/json", "Content-Length": "100"})
    async with (
        open_stub_upstream(sends_and_closes(begun + b'{"id"'), sends_and_closes(begun)) as stub,
        open_world(tmp_path, llm(stub.url)) as world,
    ):
        got = await world.ask(ASK)
        assert (got.status, got.body, got.complete) == (200, b'{"id"', False)
        assert (await world.ended()).error_code == "UPSTREAM_5XX"
        got = await world.ask(ASK)
        assert (got.status, got.code) == (502, "UPSTREAM_5XX")
        await world.ended(2)


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False, "x": 1}])
async def test_llm_usage_is_asked_for_and_taken_out(tmp_path: Path, options: dict | None) -> None:
    """With `inject_usage` the upstream is asked for its usage, and the chunk that comes of it is not passed on (GW-18)."""
    pieces = [delta("a") + b"\n\n", USAGE + b"\n\n", b"data: [DONE]\n\n"]
    script = sends(CHUNKED + b"".join(map(chunk, pieces)) + END)
    ask = ASK if options is None else ASK | {"stream_options": options}
    async with (
        open_stub_upstream(script) as stub,
        open_world(tmp_path, llm(stub.url, more=", inject_usage: true")) as world,
    ):
        got = await world.ask(ask)
        ended = await world.ended()
        assert got.body == pieces[0] + pieces[2]
        await world.ask(ASK | {"stream_options": {"include_usage": True}})
        await world.ask(ASK | {"stream": False})
        await world.ask({"model": "m", "stream": True}, path="/v1/responses")
    asked = [json.loads(request.body) for request in stub.requests]
    assert asked[0] == ask | {"stream_options": {**(options or {}), "include_usage": True}}
    assert asked[1:] == [
        ASK | {"stream_options": {"include_usage": True}}, ASK | {"stream": False}, {"model": "m", "stream": True}
    ]  # fmt: skip
    assert ended.usage is not None
    assert ended.usage.output_tokens == 2
    assert ended.response is not None
    assert ended.response.size == len(got.body)


async def test_llm_client_that_asks_for_usage_gets_it(tmp_path: Path) -> None:
    """A client's own wish for the usage is left alone, and fulfilled (GW-18)."""
    pieces = [delta("a") + b"\n\n", USAGE + b"\n\n", b"data: [DONE]\n\n"]
    async with (
        open_stub_upstream(sends(CHUNKED + b"".join(map(chunk, pieces)) + END)) as stub,
        open_world(tmp_path, llm(stub.url, more=", inject_usage: true")) as world,
    ):
        got = await world.ask(ASK | {"stream_options": {"include_usage": True}})
        assert got.body == b"".join(pieces)
        await world.ended()


async def test_llm_long_stream_keeps_memory_flat(tmp_path: Path) -> None:
    """A stream of 100,000 chunks is passed on in constant memory, whole (GW-18)."""
    events, portion = 100_000, 500
    event = delta("token") + b"\n\n"

    async def play(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.send(CHUNKED)
        data = chunk(event) * portion
        for _ in range(events // portion):
            await exchange.send(data)
        await exchange.send(chunk(USAGE + b"\n\n") + END)

    async with (
        open_stub_upstream(play) as stub,
        open_world(tmp_path, llm(stub.url)) as world,
        world.client() as client,
    ):
        await client.send(ASK)
        await client.until(b"\r\n\r\n")
        taken, base, peak = len(client.data), 0, 0
        tracemalloc.start()
        while taken < events * len(event):
            with trio.fail_after(60):
                taken += len(await client.stream.receive_some(65536))
            if taken > 1_000_000 and not base:
                gc.collect()
                base = tracemalloc.get_traced_memory()[0]
                tracemalloc.reset_peak()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        await until(lambda: world.heard.calls)
        ended = await world.ended()
    assert base
    assert peak - base < 2_000_000
    assert ended.response is not None
    assert ended.response.size == events * len(event) + len(USAGE) + 2
    assert ended.usage is not None
