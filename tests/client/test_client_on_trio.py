"""The client on Trio: the same calls, with pauses that other tasks can use."""

import inspect

import httpx2
import pytest
import trio
from test_client_repeats import JOB, Script, job, problem

from gateway.client import AsyncClient, Client, GatewayError, Repeats


def client(script: Script, repeats: Repeats | None = None) -> AsyncClient:
    return AsyncClient("http://gateway", repeats=repeats, transport=httpx2.MockTransport(script))


def test_client_both_have_the_same_methods():
    """Whatever one client can be asked, the other can, by the same names."""

    def shape(kind: type) -> dict[str, list[str]]:
        methods = inspect.getmembers(kind, inspect.isfunction)
        return {name: [*inspect.signature(method).parameters] for name, method in methods if name[0] != "_"}

    assert shape(Client) == shape(AsyncClient)


async def test_client_on_trio_submits_files_and_pieces(tmp_path):
    """A path, blocking pieces and asynchronous pieces arrive whole; a file is sent again after a break."""
    path = tmp_path / "scan.png"
    path.write_bytes(b"x" * 600_000)

    async def pieces():
        yield b"a"
        yield b"b"

    bodies = []

    async def handler(request: httpx2.Request) -> httpx2.Response:
        bodies.append(await request.aread())
        if len(bodies) == 1:
            raise httpx2.ReadError("cut", request=request)
        return job(202)

    transport = httpx2.MockTransport(handler)
    async with AsyncClient("http://gateway", repeats=Repeats(first_pause_s=0), transport=transport) as asking:
        await asking.submit(path, model="ocr")
        await asking.submit(iter([b"1", b"2"]), model="ocr")
        await asking.submit(pieces(), model="ocr")
        await asking.submit(pieces(), model="ocr", form=True)
    assert bodies[:4] == [b"x" * 600_000, b"x" * 600_000, b"12", b"ab"]
    assert b"\r\n\r\nab\r\n--" in bodies[4]


def test_client_asynchronous_pieces_need_the_client_on_trio():
    """Asynchronous pieces are a mistake where nothing can await them."""

    async def pieces():
        yield b"a"

    with Script(job(202)).client() as blocking, pytest.raises(TypeError, match="AsyncClient"):
        blocking.submit(pieces(), model="ocr")


async def test_client_on_trio_waits_as_the_gateway_says(autojump_clock):
    """The pause before a repetition is Retry-After, or doubles from half a second, give or take a fifth."""
    script = Script(
        problem(503, "DRAINING", **{"retry-after": "7"}),
        httpx2.ReadError,
        httpx2.ReadError,
        httpx2.ReadError,
        job(),
    )
    async with client(script) as asking:
        began = trio.current_time()
        await asking.get("job_1")
    assert 7 + 0.8 * (1 + 2 + 4) <= trio.current_time() - began <= 7 + 1.2 * (1 + 2 + 4)


async def test_client_on_trio_gives_up_in_time(autojump_clock):
    """No repetition begins after the time that the caller allowed."""
    script = Script(*[httpx2.ConnectError] * 100)
    async with client(script, Repeats(times=100, within_s=30.0)) as asking:
        with pytest.raises(GatewayError, match="UNREACHABLE"):
            await asking.get("job_1")
    assert trio.current_time() <= 30.0


async def test_client_on_trio_rests_after_a_wait_that_was_cut_short(autojump_clock):
    """A gateway that answers waits at once, because it drains, is not asked without a pause."""
    done = httpx2.Response(200, json={**JOB, "status": "completed", "done": True})
    script = Script(job(), job(), job(), done)
    async with client(script) as asking:
        began = trio.current_time()
        assert (await asking.wait("job_1")).done
        assert trio.current_time() - began == pytest.approx(3.0)
        script._answers = [job()]
        began = trio.current_time()
        assert not (await asking.wait("job_1", timeout_s=0.0)).done
        assert trio.current_time() == began


async def test_client_on_trio_controls_and_reads():
    """Each control, the result, a list and a delete are sent and read."""
    page = {"data": [JOB], "has_more": False, "next": None, "as_of": "a"}
    answers = [
        *[job() for _ in range(6)],
        httpx2.Response(200, content=b"R", headers={"content-type": "text/plain"}),
    ]
    script = Script(*answers, httpx2.Response(200, json=page), httpx2.Response(204))
    async with client(script) as asking:
        await asking.submit_input({"q": 1}, model="ocr")
        for action in ("cancel", "pause", "interrupt", "resume", "retry"):
            await getattr(asking, action)("job_1")
        result = await asking.result("job_1")
        assert (result.content, result.content_type) == (b"R", "text/plain")
        assert [each.job_id async for each in asking.list(status="failed")] == ["job_1"]
        await asking.delete("job_1")
    assert [request.method for request in script.requests][-3:] == ["GET", "GET", "DELETE"]
