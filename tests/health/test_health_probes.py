"""Probes: when they are sent, what counts as healthy, and that an endpoint comes back by itself."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from adapters.api_key import ApiKey
from adapters.base import Kind
from adapters.http import open_http_client
from adapters.testing.scripts import Hang, answer, closes_before_answer, sends
from adapters.testing.stub import open_stub_upstream
from gateway.config.upstreams import Endpoint, OcrUpstream
from gateway.config.upstreams import Health as Probed
from gateway.health import State, UpstreamHealth, probes, watch_upstream


def health_of(*urls: str, probed: bool = True) -> UpstreamHealth:
    upstream = OcrUpstream(
        name="ocr",
        upstream_class="on_prem",
        endpoints=tuple(Endpoint(url, 2) for url in urls),
        models=("ocr-large",),
        adapter="sync-http",
        submit_path="/ocr",
        health=Probed(path="/health", interval_s=10.0) if probed else None,
    )
    return UpstreamHealth(upstream, chance=lambda: 0.5)


class FakeProber:
    """Notes when it is asked, and says what it was told to."""

    configured = Probed(path="/health", interval_s=10.0)

    def __init__(self, *verdicts: bool) -> None:
        self.verdicts = list(verdicts)
        self.asked: list[float] = []
        self.at_once = self.most_at_once = 0

    async def is_healthy(self, _url: str) -> bool:
        self.asked.append(trio.current_time())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await trio.sleep(0.25)
        self.at_once -= 1
        return self.verdicts.pop(0) if self.verdicts else True


async def until_closed(health: UpstreamHealth, url: str) -> None:
    while health.breaker(url).state is not State.CLOSED:
        with health.unchanged():
            await trio.sleep_forever()


async def probe_for(seconds: float, health: UpstreamHealth, prober: FakeProber) -> list[float]:
    """When probes were sent, from the start of the service."""
    began = trio.current_time()
    with trio.move_on_after(seconds):
        await probes._keep_probing(health, "http://a", prober)
    return [asked - began for asked in prober.asked]


async def test_health_probes_come_every_interval(autojump_clock):
    """A closed endpoint is probed at the start, and then interval_s after each answer."""
    assert await probe_for(32, health_of("http://a"), FakeProber()) == [0, 10.25, 20.5, 30.75]


async def test_health_probes_open_and_close_a_breaker(autojump_clock):
    """Five failed probes open the breaker; then one comes at each half-open moment, until one succeeds."""
    health = health_of("http://a")
    prober = FakeProber(*[False] * 7)
    asked = await probe_for(60, health, prober)
    opened = 4 * 10.25 + 0.25
    assert asked[4:] == [
        opened - 0.25,
        opened + 1,
        opened + 1 + 0.25 + 2,
        opened + 3.25 + 0.25 + 4,
        asked[7] + 10.25,
    ]
    assert health.breaker("http://a").state is State.CLOSED
    assert prober.most_at_once == 1


async def test_health_probe_comes_as_soon_as_calls_opened_the_breaker(autojump_clock):
    """Failures of calls open the breaker between two probes: the next probe is that of the half-open moment."""
    health = health_of("http://a")
    prober = FakeProber()

    async def fail_at(seconds: float) -> None:
        await trio.sleep(seconds)
        for _ in range(5):
            health.failed("http://a", Kind.PROVIDER_5XX)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail_at, 3)
        assert await probe_for(6, health, prober) == [0, 4]
    assert health.breaker("http://a").state is State.CLOSED


@pytest.mark.parametrize(
    ("script", "healthy"),
    [
        (answer(b"{}"), True),
        (answer(b"", status=204), True),
        (answer(b"x" * 1_000_000), True),
        (answer(b"", status=302, headers={"Location": "/login"}), False),
        (answer(b"", status=404), False),
        (answer(b"", status=503), False),
        (closes_before_answer(), False),
        (sends(b"SSH-2.0-OpenSSH\r\n\r\n"), False),
    ],
)
async def test_health_probe_by_its_answer(script, healthy):
    """2xx is healthy; a redirect, an error, no answer and no HTTP are not."""
    async with (
        open_stub_upstream(script) as stub,
        open_http_client(connections=1, wall_clock=lambda: 0) as client,
    ):
        prober = probes._Prober(client, Probed(path="/health"), ApiKey("X-Key", "secret-key"), bound_s=30)
        assert await prober.is_healthy(stub.url) is healthy
        [request] = stub.requests
        assert (request.method, request.target, request.body) == ("GET", "/health", b"")
        assert request.header("x-key") == "secret-key"
    assert "secret-key" not in repr(prober)


async def test_health_probe_is_bounded(mock_clock):
    """An endpoint that accepts and never answers is unhealthy when the bound is over; its connection is closed."""
    hang = Hang()
    verdicts = []

    async with (
        open_stub_upstream(hang) as stub,
        open_http_client(connections=1, wall_clock=lambda: 0) as client,
        trio.open_nursery() as nursery,
    ):
        prober = probes._Prober(client, Probed(path="/health"), None, bound_s=5)

        async def probe() -> None:
            verdicts.append(await prober.is_healthy(stub.url))

        nursery.start_soon(probe)
        await hang.started.wait()
        mock_clock.jump(5)
        await hang.client_closed.wait()
    assert verdicts == [False]


async def test_health_comes_back_by_itself(mock_clock):
    """An upstream whose endpoints are all open is up again after one probe each, without any call (50)."""
    async with open_stub_upstream(answer(b"{}")) as one, open_stub_upstream(answer(b"{}")) as two:
        health = health_of(one.url, two.url)
        for url in (one.url, two.url) * 5:
            health.failed(url, Kind.CONNECT)
        assert health.down
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_upstream, health, None, lambda: 0)
            await wait_all_tasks_blocked()
            assert one.requests == two.requests == []
            mock_clock.jump(1)
            await until_closed(health, one.url)
            await until_closed(health, two.url)
            assert not health.down
            nursery.cancel_scope.cancel()
