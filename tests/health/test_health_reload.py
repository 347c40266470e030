"""Breakers over a reload."""

from pathlib import Path

import trio
import trio.testing

from adapters.base import Kind
from gateway.clock import wall_clock
from gateway.config import Upstream, parse_config
from gateway.health import Health, State, Watched, Watching


def upstreams(*endpoints: str, names: tuple[str, ...] = ("ocr",), slots: int = 1) -> tuple[Upstream, ...]:
    urls = ", ".join(f'{{url: "{url}", slots: {slots}}}' for url in endpoints)
    each = (
        f"{{name: {name}, type: ocr-http, adapter: sync-http, class: on_prem, models: [{name}], submit_path: /ocr,"
        f" endpoints: [{urls}]}}"
        for name in names
    )
    return parse_config(f"upstreams: [{', '.join(each)}]", Path("/"), {}).config.upstreams


def trip(health: Health, url: str) -> None:
    for _ in range(5):
        health.of("ocr").failed(url, Kind.CONNECT)


async def test_health_endpoints_that_stay_keep_their_breakers(autojump_clock):
    """An endpoint that is configured again is as healthy as before, whatever else of its upstream changes; a new one is
    healthy, and one that is gone neither matters nor breaks what still calls it."""
    before = upstreams("http://a", "http://b")
    health = Health(before)
    trip(health, "http://a")
    after = upstreams("http://a", "http://c", slots=7)
    successor = health.successor(after)
    assert health.of("ocr").slots().endpoints[0].slots == 1, "nothing changes before it is settled"
    successor.settle(after)
    upstream = successor.of("ocr")
    assert [(each.url, each.slots, each.usable) for each in upstream.slots().endpoints] == [
        ("http://a", 7, False), ("http://c", 7, True),
    ]  # fmt: skip
    upstream.failed("http://b", Kind.CONNECT)
    upstream.succeeded("http://b")
    assert not successor.down("ocr")
    assert upstream.breaker("http://b").state is State.CLOSED


async def test_health_whoever_waits_for_a_claim_asks_again(autojump_clock):
    """What was asked for with other capacities is given up, so it is asked for with the new ones."""
    before = upstreams("http://a")
    health = Health(before)
    changed = trio.Event()

    async def wait():
        with health.of("ocr").unchanged():
            await trio.sleep_forever()
        changed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        health.successor(before).settle(before)
        await trio.testing.wait_all_tasks_blocked()
        assert not changed.is_set(), "the same configuration changes nothing"
        health.successor(after := upstreams("http://a", slots=2)).settle(after)
        with trio.fail_after(1):
            await changed.wait()


async def test_health_upstreams_come_and_go():
    """One that is gone is not asked about any more; a new one starts healthy."""
    health = Health(upstreams("http://a"))
    trip(health, "http://a")
    after = upstreams("http://a", names=("other",))
    successor = health.successor(after)
    successor.settle(after)
    assert [each.upstream.name for each in successor] == ["other"]
    assert not successor.down("other")
    assert not successor.down("ocr"), "what is not configured is not down"


async def test_health_watching_follows_the_configuration(autojump_clock, monkeypatch):
    """Breakers are tended by one task for each upstream, which goes on where nothing changed, begins anew where something
    did, and ends with its upstream."""
    began: list[str] = []
    ended: list[str] = []

    async def watch(health, _key, _clock):
        began.append(health.upstream.name)
        try:
            await trio.sleep_forever()
        finally:
            ended.append(health.upstream.name)

    monkeypatch.setattr("gateway.health.probes.watch_upstream", watch)

    def watched(*configured: Upstream) -> list[Watched]:
        return [Watched(each, next(iter(Health([each]))), None) for each in configured]

    a, b = upstreams("http://a", names=("a", "b"))
    async with trio.open_nursery() as nursery:
        watching = Watching(watched(a, b), wall_clock)
        watching.change(watched(a, b))  # before it runs
        nursery.start_soon(watching.run)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(began) == ["a", "b"]
        [c] = upstreams("http://other", names=("b",))
        watching.change(watched(a, c))
        await trio.testing.wait_all_tasks_blocked()
        assert (sorted(began), ended) == (["a", "b", "b"], ["b"])
        watching.change(watched(c))
        await trio.testing.wait_all_tasks_blocked()
        assert ended == ["b", "a"]
        nursery.cancel_scope.cancel()
    watching.change(watched(a, b))  # a reload that comes while the process ends
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(began) == ["a", "b", "b"]
