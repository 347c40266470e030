"""One attempt, against real receivers on this machine."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
import trio
from dead_port import refusing
from hook_making import KEY, letter, verified
from trio.testing import MockClock, wait_all_tasks_blocked

from adapters.testing.scripts import (
    Hang,
    answer,
    closes_before_answer,
    head,
    message,
    sends,
    sends_and_closes,
)
from adapters.testing.stub import open_stub_upstream
from gateway.webhooks import postman as module
from gateway.webhooks.addresses import Resolver, system_addresses
from gateway.webhooks.postman import READ_BYTES, Postman

NOW = 1_750_000_009_999
MESSAGE = "msg_1"


def poster(*hosts: str, names=system_addresses, ssl_context: ssl.SSLContext | None = None) -> Postman:
    return Postman(
        Resolver(4, names), lambda: hosts, ssl_context or ssl.create_default_context(), lambda: NOW
    )


def local() -> Postman:
    return poster("127.0.0.1")


async def post(url: str, made: Postman | None = None, **fields):
    return await (made or local()).post(letter(url, **fields), MESSAGE, KEY)


async def test_what_is_sent():
    """A webhook is a POST of the letter to path and query, signed, under the receiver's own name, and nothing besides."""
    async with open_stub_upstream(answer(b"ok")) as stub:
        attempt = await post(f"{stub.url}/hook?to=me", traceparent="tp", tracestate="ts")
    assert (attempt.http_status, attempt.is_taken, attempt.reason) == (200, True, None)
    [request] = stub.requests
    headers = dict(request.headers)
    assert verified(headers, request.body) == {"type": "job.completed"}
    assert (request.method, request.target) == ("POST", "/hook?to=me")
    del headers["webhook-signature"]
    assert headers == {
        "host": stub.url.removeprefix("http://"),
        "user-agent": "Sluicegate",
        "content-length": str(len(request.body)),
        "content-type": "application/json",
        "webhook-id": MESSAGE,
        "webhook-timestamp": "1750000009",
        "traceparent": "tp",
        "tracestate": "ts",
    }


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_2xx_is_success(status):
    """Any 2xx says that the receiver has the message (20)."""
    async with open_stub_upstream(answer(b"", status=status)) as stub:
        assert (await post(stub.url)).is_taken


@pytest.mark.parametrize("status", [300, 301, 302, 304, 307, 308, 400, 401, 404, 409, 410, 429, 500, 503])
async def test_everything_else_is_not(status):
    """Any other status is a failure, a redirect too; it is never followed (20)."""
    async with (
        open_stub_upstream(answer(b"")) as other,
        open_stub_upstream(answer(b"", status=status, headers={"Location": other.url})) as stub,
    ):
        attempt = await post(stub.url)
        assert not other.requests
        assert len(stub.requests) == 1
    assert (attempt.http_status, attempt.is_taken, attempt.is_gone) == (status, False, status == 410)


@pytest.mark.parametrize(
    ("value", "asked_s"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("Sun, 15 Jun 2025 15:08:49 GMT", pytest.approx(119.0, abs=1)),
        ("soon", None),
    ],
)
async def test_retry_after_is_read(value, asked_s):
    """Retry-After counts as seconds or as a date."""
    async with open_stub_upstream(answer(b"", status=503, headers={"Retry-After": value})) as stub:
        assert (await post(stub.url)).retry_after_s == asked_s


async def test_no_connection():
    """A receiver that is not there is a failure without a status."""
    with refusing() as url:
        attempt = await post(f"{url}/")
    assert attempt.http_status is None
    assert "refused" in attempt.reason


@pytest.mark.parametrize(
    ("script", "words"),
    [(closes_before_answer(), "ended"), (sends(b"SSH-2.0-x\r\n\r\n"), "illegal status line")],
    ids=["closes", "no-http"],
)
async def test_no_answer(script, words):
    """A connection that ends before an answer, or brings something else, is a failure without a status."""
    async with open_stub_upstream(script) as stub:
        attempt = await post(stub.url)
    assert attempt.http_status is None
    assert words in attempt.reason


async def test_answers_before_its_time():
    """A receiver that answers and closes is heard."""
    async with open_stub_upstream(sends_and_closes(message(b"", status=410))) as stub:
        assert (await post(stub.url)).is_gone


async def test_silence_is_bounded(monkeypatch):
    """A receiver that gives no answer is left after ATTEMPT_S, and its connection closed."""
    assert module.ATTEMPT_S == 15
    monkeypatch.setattr(module, "ATTEMPT_S", 0.05)
    hang = Hang()
    async with open_stub_upstream(hang) as stub:
        attempt = await post(stub.url)
        await hang.client_closed.wait()
    assert attempt.http_status is None
    assert "no answer within" in attempt.reason


async def test_a_body_is_read_to_a_bound(monkeypatch):
    """Of an answer's body a little is read and thrown away; one without end changes nothing."""

    monkeypatch.setattr(module, "READ_S", 1e6)

    async def endless(exchange):
        await exchange.read_body()
        await exchange.send(head(200, {"Content-Length": str(10**12)}))
        while True:
            await exchange.send(bytes(READ_BYTES))

    async with open_stub_upstream(endless) as stub:
        with trio.fail_after(30):
            assert (await post(stub.url)).is_taken


def test_a_head_that_comes_last(monkeypatch):
    """A head that comes within ATTEMPT_S counts, also when its body then takes for ever."""

    async def main():
        arrived, go_on, reading = trio.Event(), trio.Event(), trio.Event()
        read_some = module._read_some

        async def script(exchange):
            await exchange.read_body()
            arrived.set()
            await go_on.wait()
            await exchange.send(head(200, {"Content-Length": "10"}))
            await exchange.wait_client_closed()

        async def noted(connection):
            reading.set()
            await read_some(connection)

        monkeypatch.setattr(module, "_read_some", noted)
        async with open_stub_upstream(script) as stub, trio.open_nursery() as nursery:
            made = []
            nursery.start_soon(keep, made, post(stub.url))
            await arrived.wait()
            clock.jump(module.ATTEMPT_S - 1)
            go_on.set()
            await reading.wait()
            clock.jump(module.READ_S - 0.5)
            await wait_all_tasks_blocked()
            assert not made
            clock.jump(0.5)
        assert made[0].http_status == 200

    async def keep(made, attempt):
        made.append(await attempt)

    clock = MockClock()
    trio.run(main, clock=clock)


async def test_connections_are_used_once():
    """Each attempt has a connection of its own, so each looks its receiver up anew."""
    async with open_stub_upstream(answer(b"")) as stub:
        made = local()
        await post(stub.url, made)
        await post(stub.url, made)
        assert stub.connections == 2


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:{port}/", "http://127.0.0.1:{port}/", "https://localhost:{port}/"]
)
async def test_private_addresses_are_refused_at_the_attempt(url):
    """A receiver inside is refused before a connection is made (20)."""
    async with open_stub_upstream(answer(b"")) as stub:
        attempt = await post(url.format(port=stub.url.rpartition(":")[2]), poster())
        assert stub.connections == 0
    assert attempt.http_status is None
    assert "allowed_hosts" in attempt.reason


class Names:
    """A resolver that says something else each time."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, host: str, _port: int) -> list[str]:
        self.asked.append(host)
        return self.answers.pop(0)


async def test_a_name_that_turns_inward_is_refused():
    """A name that was public at the submit and is private at the attempt is not called (DNS rebinding)."""
    async with open_stub_upstream(answer(b"")) as stub:
        url = f"https://rebind.example:{stub.url.rpartition(':')[2]}/"
        attempt = await post(url, poster(names=Names(["127.0.0.1"])))
        assert stub.connections == 0
    assert attempt.http_status is None
    assert "public" in attempt.reason


async def test_the_address_that_was_judged_is_called(monkeypatch):
    """A name is looked up once an attempt, and the connection goes to what that said: no later answer matters."""
    names = Names(["93.184.215.14"], ["127.0.0.1"])
    called = []

    async def open_tcp_stream(host, port, **_kwargs):
        called.append((host, port))
        await trio.lowlevel.checkpoint()
        raise OSError("no network here")

    monkeypatch.setattr(trio, "open_tcp_stream", open_tcp_stream)
    attempt = await post("https://rebind.example/", poster(names=names))
    assert (called, names.asked) == ([("93.184.215.14", 443)], ["rebind.example"])
    assert attempt.reason == "no network here"


async def test_addresses_are_tried_in_turn():
    """When one address gives no connection the next one is called, under the same name."""
    made = poster("hooks.internal", names=Names(["127.0.0.2", "127.0.0.1"]))
    async with open_stub_upstream(answer(b"")) as stub:
        port = stub.url.rpartition(":")[2]
        assert (await post(f"http://hooks.internal:{port}/", made)).is_taken
        assert stub.requests[0].header("host") == f"hooks.internal:{port}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate for hooks.example, and its key."""
    if not (openssl := shutil.which("openssl")):
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    making = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -addext subjectAltName=DNS:hooks.example"
    files = f"-keyout {folder}/key.pem -out {folder}/cert.pem"
    subprocess.run([*making.split(), *files.split()], check=True, capture_output=True)
    return folder


async def test_tls_goes_by_the_name(certificate):
    """Over https the server is told, and must prove, the name of the URL, whichever address was called."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    named = []
    serving.sni_callback = lambda _socket, name, _context: named.append(name)
    trusting = ssl.create_default_context(cafile=str(certificate / "cert.pem"))

    async def serve(stream):
        try:
            await stream.receive_some()
            await stream.send_all(message(b""))
        except trio.BrokenResourceError:
            pass  # it hung up on a certificate that it does not trust
        finally:
            await trio.aclose_forcefully(stream)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        tls = trio.SSLListener(listener, serving, https_compatible=True)
        await nursery.start(trio.serve_listeners, serve, [tls])
        names = Names(["127.0.0.1"], ["127.0.0.1"])
        made = poster("hooks.example", "other.example", names=names, ssl_context=trusting)
        good = await post(f"https://hooks.example:{port}/", made)
        bad = await post(f"https://other.example:{port}/", made)
        nursery.cancel_scope.cancel()
    assert good.is_taken
    assert named == ["hooks.example", "other.example"]
    assert bad.http_status is None
    assert "certificate" in bad.reason


async def test_no_secret_in_what_is_said():
    """What is said of a failure names no more of the URL than its host (GW-3)."""
    said = []
    async with open_stub_upstream(closes_before_answer()) as stub:
        said.append(await post(f"{stub.url}/t0p?t0p=t0p"))
    said.append(await post("http://127.0.0.1:1/t0p", poster()))
    said.append(await post("https://user:t0p@client.example/"))
    assert "t0p" not in repr(said)
    assert KEY.decode() not in repr(said)
