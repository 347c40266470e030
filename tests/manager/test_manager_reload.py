"""Upstreams that come, go and change while jobs run."""

from pathlib import Path

import pytest
import trio
import trio.testing
from manager_world import Scripted, World, answer, at_once, managing, ocr_at, until
from msgspec import structs

from gateway.config import Secrets, parse_config
from gateway.health import Health
from gateway.manager.fleet import bounds
from gateway.manager.manager import Bounds
from gateway.manager.upstreams import Loading, Target, make_targets
from store.job import Status
from store.policy import StorePolicy
from store.testing.making import present, submit
from store.testing.model import open_model
from store.testing.model_harness import trio_clock


def target_of(world: World, adapter, *, name: str = "ocr", closed: list[str] | None = None) -> Target:
    upstream = parse_config(ocr_at("http://ocr.example"), Path("/"), {}).config.upstreams[0]
    upstream = structs.replace(upstream, name=name)
    health = world.health[name] if name in world.health else next(iter(Health([upstream])))
    close = (lambda: closed.append(name)) if closed is not None else (lambda: None)
    return Target(upstream=upstream, health=health, adapter=adapter, key=None, timeout_s=900.0, close=close)


def gated():
    may_end = trio.Event()

    async def play(_call, _report):
        await may_end.wait()
        return answer()

    return Scripted(play), may_end


BOUNDS = Bounds(64, 30.0)


async def test_manager_reload_calls_in_flight_end_as_they_began(autojump_clock):
    """A call of an upstream that was configured otherwise, or taken away, ends undisturbed; the next is made by the new
    one; the connections of the old one are closed when its last call has ended."""
    old, may_end = gated()
    new, closed = Scripted(at_once), []
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store, managing(store, {}) as world:
        first_target = target_of(world, old, closed=closed)
        world.manager.reconfigure([first_target], BOUNDS)
        first = await submit(store)
        await until(store, first.id, lambda job: job.status is Status.PROCESSING)
        world.manager.reconfigure([target_of(world, new)], BOUNDS)
        second = await submit(store)
        await until(store, second.id, lambda job: job.status is Status.COMPLETED)
        assert (len(old.calls), len(new.calls), closed) == (1, 1, [])
        world.manager.reconfigure([], BOUNDS)
        may_end.set()
        await until(store, first.id, lambda job: job.status is Status.COMPLETED)
        await trio.testing.wait_all_tasks_blocked()
        assert closed == ["ocr"]
        assert not (await store.slots.counts("ocr")).in_use


async def test_manager_reload_keeps_what_stays(autojump_clock):
    """A target that is named again goes on: its dispatcher is the same, and nothing is closed."""
    adapter, closed = Scripted(at_once), []
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store, managing(store, {}) as world:
        target = target_of(world, adapter, closed=closed)
        await trio.testing.wait_all_tasks_blocked()
        world.manager.reconfigure([target], BOUNDS)
        [(_, scope)] = world.manager._dispatching
        world.manager.reconfigure([target], BOUNDS)
        assert [each for _, each in world.manager._dispatching] == [scope]
        assert not scope.cancel_called
        job = await submit(store)
        await until(store, job.id, lambda job: job.status is Status.COMPLETED)
        assert closed == []


async def test_manager_reload_jobs_of_what_is_gone_wait(autojump_clock):
    """Nothing is claimed for an upstream that is gone; when it is back its jobs run (page 10)."""
    adapter = Scripted(at_once)
    async with (
        open_model(StorePolicy(), trio_clock, "replica-1") as store,
        managing(store, {"ocr": adapter}) as world,
    ):
        world.manager.reconfigure([], BOUNDS)
        job = await submit(store)
        await trio.sleep(60)
        assert (await present(store, job.id)).status is Status.QUEUED
        world.manager.reconfigure([target_of(world, adapter)], BOUNDS)
        await until(store, job.id, lambda job: job.status is Status.COMPLETED)


async def test_manager_reload_changes_how_many_run(autojump_clock):
    """With a lower bound no more are claimed until enough have ended; with a higher one at once."""
    adapter, may_end = gated()
    upstreams = ocr_at("http://ocr.example", slots=10)
    async with (
        open_model(StorePolicy(), trio_clock, "replica-1") as store,
        managing(store, {"ocr": adapter}, max_running=2, upstreams=upstreams) as world,
    ):
        targets = world.manager._targets
        for _ in range(6):
            await submit(store)
        await trio.sleep(1)
        assert adapter.in_flight == 2
        world.manager.reconfigure(targets, Bounds(4, 30.0))
        await trio.sleep(1)
        assert adapter.in_flight == 4
        world.manager.reconfigure(targets, Bounds(1, 30.0))
        await trio.sleep(1)  # time passes: nobody looks again and again for room
        may_end.set()
        await trio.sleep(1)
        assert (len(adapter.calls), adapter.in_flight) == (6, 0)
        assert world.manager._room == 1


async def test_manager_refuses_jobs_of_what_is_forbidden(autojump_clock):
    """A job whose upstream is external and not allowed any more fails at its claim, without a call, by the policy's code
    and no error_kind (pages 10, 30)."""
    adapter = Scripted(at_once)
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store, managing(store, {}) as world:
        job = await submit(store, max_attempts=3)
        world.manager.reconfigure([structs.replace(target_of(world, adapter), allowed=False)], BOUNDS)
        failed = await until(store, job.id, lambda job: job.status is Status.FAILED)
        assert (failed.error_code, failed.error_kind, failed.problem.status) == (
            "EXTERNAL_UPSTREAM_FORBIDDEN", None, 403,
        )  # fmt: skip
        assert adapter.calls == []
        assert [each.id for each in world.heard.jobs] == [job.id]
        assert not (await store.slots.counts("ocr")).in_use


CONFIG = """
allow_external_upstreams: {allow}
upstreams:
  - {{name: ocr, type: ocr-http, adapter: sync-http, class: on_prem, models: [m], submit_path: /ocr, endpoints: [{{url: "http://a", slots: {slots}}}]}}
  - {{name: cloud, type: ocr-http, adapter: sync-http, class: external_dev, models: [n], submit_path: /ocr, endpoints: [{{url: "http://b", slots: 1}}]}}
"""


def loading(health: Health | None = None, *, allow: str = "true", slots: int = 1) -> Loading:
    config = parse_config(CONFIG.format(allow=allow, slots=slots), Path("/"), {}).config
    return Loading(
        config, Secrets({}), health.successor(config.upstreams) if health else Health(config.upstreams)
    )


@pytest.mark.parametrize(
    ("change", "refusing", "expected"),
    [
        ({}, True, {"ocr": "same", "cloud": "same"}),
        ({"slots": 2}, True, {"ocr": "new", "cloud": "same"}),
        ({"allow": "false"}, True, {"ocr": "same", "cloud": "refusing"}),
        ({"allow": "false"}, False, {"ocr": "same"}),
    ],
)
def test_targets_that_stay_are_taken_as_they_are(change, refusing, expected):
    """A target whose upstream is configured as before is the same object; what is forbidden is refused, or not there."""
    first = loading()
    before = {target.upstream.name: target for target in make_targets(first, lambda: 0, refusing=refusing)}
    after = make_targets(loading(first.health, **change), lambda: 0, [*before.values()], refusing=refusing)
    kinds = {
        target.upstream.name: "same"
        if target is before[target.upstream.name]
        else "new"
        if target.allowed
        else "refusing"
        for target in after
    }
    assert kinds == expected
    for target in (*before.values(), *after):
        target.close()


def test_bounds_are_the_configurations():
    """How many run, and how long a drain waits, are those of the configuration."""
    assert bounds(loading().config) == Bounds(64, 30.0)
