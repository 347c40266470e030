"""What follows from the breakers: usable endpoints, down, and that whoever waits learns of a change."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from adapters.base import Kind
from gateway.config.upstreams import Endpoint, OcrUpstream
from gateway.config.upstreams import Health as Probed
from gateway.health import Health, State, UpstreamHealth, watch_upstream
from store.job import PriorityClass
from store.policy import Tenants
from store.slots import Slots

A, B = "http://a", "http://b"


def upstream(*, probed: bool = False) -> OcrUpstream:
    return OcrUpstream(
        name="ocr",
        upstream_class="on_prem",
        endpoints=(Endpoint(A, 4), Endpoint(B, 2)),
        models=("ocr-large",),
        adapter="sync-http",
        submit_path="/ocr",
        health=Probed(path="/health") if probed else None,
    )


def health_of(*, probed: bool = False) -> UpstreamHealth:
    return UpstreamHealth(upstream(probed=probed), chance=lambda: 0.5)


def trip(health: UpstreamHealth, url: str) -> None:
    for _ in range(5):
        health.failed(url, Kind.CONNECT)


def offered(health: UpstreamHealth) -> dict[str, int]:
    return {endpoint.url: endpoint.offered for endpoint in health.slots().endpoints}


@pytest.mark.parametrize("kind", Kind)
async def test_health_of_a_failure_by_its_kind(autojump_clock, kind):
    """Five connect or 5xx failures open a breaker; other answers reset the count; timeouts and defects say nothing."""
    health = health_of()
    for _ in range(4):
        health.failed(A, Kind.CONNECT)
    health.failed(A, kind)
    opens = kind in {Kind.CONNECT, Kind.PROVIDER_5XX}
    assert (health.breaker(A).state is State.OPEN) == opens
    health.failed(A, Kind.PROVIDER_5XX)
    is_silent = kind in {Kind.TIMEOUT, Kind.INTERNAL, Kind.UNKNOWN}
    assert (health.breaker(A).state is State.OPEN) == (opens or is_silent)


async def test_health_offers_an_endpoint_by_its_state(autojump_clock):
    """Closed: all slots; open: none; half open: one call, alone; the capacity stays as configured."""
    health = health_of()
    assert offered(health) == {A: 4, B: 2}
    trip(health, A)
    assert offered(health) == {A: 0, B: 2}
    await trio.sleep(1)
    assert offered(health) == {A: 1, B: 2}
    assert health.slots().slots == 6
    health.succeeded(A)
    assert offered(health) == {A: 4, B: 2}


async def test_health_keeps_calls_from_an_endpoint_that_is_probed(autojump_clock):
    """With health.path a half-open endpoint is for the probe alone."""
    health = health_of(probed=True)
    trip(health, A)
    await trio.sleep(1)
    assert health.breaker(A).state is State.HALF_OPEN
    assert offered(health) == {A: 0, B: 2}


async def test_health_is_down_without_a_closed_breaker(autojump_clock):
    """An upstream is down as long as no endpoint's breaker is closed, half-open ones included; an unknown one is not."""
    every = Health([upstream()])
    health = every.of("ocr")
    trip(health, A)
    assert not every.down("ocr")
    trip(health, B)
    assert every.down("ocr")
    await trio.sleep(2)
    assert every.down("ocr")
    health.succeeded(B)
    assert not every.down("ocr")
    assert not every.down("removed")


async def test_health_wakes_whoever_waits_at_each_change(autojump_clock):
    """A block that holds while nothing changes ends when a breaker opens, becomes half open by itself, and closes."""
    health = health_of()
    ended = []

    async def wait_thrice():
        for _ in range(3):
            with health.unchanged():
                await trio.sleep_forever()
            ended.append((trio.current_time(), health.breaker(A).state))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_upstream, health, None, lambda: 0)
        nursery.start_soon(wait_thrice)
        await wait_all_tasks_blocked()
        began = trio.current_time()
        trip(health, A)
        await trio.sleep(1)
        await wait_all_tasks_blocked()
        health.succeeded(A)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert ended == [(began, State.OPEN), (began + 1, State.HALF_OPEN), (began + 1, State.CLOSED)]


async def test_health_block_that_ends_by_itself_is_left_alone(autojump_clock):
    """Leaving the block in time gives its value; a later change touches nothing."""
    health = health_of()
    with health.unchanged():
        await trio.lowlevel.checkpoint()
    trip(health, A)
    await trio.sleep(1)


class Calls:
    """Calls on the slots of one endpoint, the way a dispatcher makes them: offered, leased, signalled, released."""

    def __init__(self, health: UpstreamHealth) -> None:
        self.health = health
        self.slots = Slots("r", Tenants, lambda: 0)
        self.under_way: list[tuple[str, State]] = []
        self.number = 0

    def start(self) -> None:
        self.slots.note_ready("ocr", PriorityClass.BATCH)
        reservation = self.slots.reserve(self.health.slots(), 1, 100)
        if reservation is None:
            return
        self.number += 1
        taken = (f"job:{self.number}", PriorityClass.BATCH, "acme", self.slots.endpoints(reservation)[0])
        [lease] = self.slots.settle(reservation, [taken])
        self.under_way.append((lease.name, self.health.breaker(A).state))

    def end(self, index: int, kind: Kind | None) -> None:
        if self.under_way:
            name, _ = self.under_way.pop(index % len(self.under_way))
            if kind is None:
                self.health.succeeded(A)
            else:
                self.health.failed(A, kind)
            self.slots.release("ocr", name)

    @property
    def probes(self) -> int:
        return sum(state is State.HALF_OPEN for _, state in self.under_way)


STEPS = st.one_of(
    st.just("start"),
    st.tuples(st.integers(0, 9), st.sampled_from([None, Kind.CONNECT, Kind.CONNECT, Kind.TIMEOUT])),
    st.floats(0, 80),
)


@given(st.lists(STEPS, max_size=80))
def test_health_never_sends_two_probes_and_always_recovers(steps):
    """Whatever calls do, a half-open endpoint has one call at a time; once it answers, it serves all slots again."""

    async def play() -> None:
        health = UpstreamHealth(
            OcrUpstream(
                name="ocr", upstream_class="on_prem", endpoints=(Endpoint(A, 8),), models=("m",),
                adapter="sync-http", submit_path="/ocr",
            ),
            chance=lambda: 0.9,
        )  # fmt: skip
        calls = Calls(health)
        for step in [*["start"] * 6, *[(0, Kind.CONNECT)] * 5, *steps]:
            if step == "start":
                began = health.breaker(A).state
                calls.start()
                assert began is not State.OPEN or calls.probes == 0
            elif isinstance(step, tuple):
                calls.end(*step)
            else:
                clock.jump(step)
            if health.breaker(A).state is State.HALF_OPEN:
                assert calls.probes <= 1
        while calls.under_way:
            calls.end(0, Kind.TIMEOUT)
        clock.jump(72)
        calls.start()
        assert calls.under_way
        calls.end(0, None)
        assert offered(health) == {A: 8}

    clock = MockClock()
    trio.run(play, clock=clock)
