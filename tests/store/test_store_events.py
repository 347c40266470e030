"""Wake-ups inside one process, where the contract does not reach."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from store.events import Change, Events


@pytest.mark.parametrize("number", [3, 7, 9])
async def test_store_events_after_a_gap_every_tenant_is_looked_at(
    autojump_clock: MockClock, number: int
) -> None:
    """After a gap whoever watches a tenant looks again, once, also when the store went back behind what was told."""
    events = Events()
    woken = []
    with events.watch_tenant("acme") as own, events.watch_tenant(None) as all_of_them:
        events.changed(Change("job_1", 1, "acme", 7))

        async def wait(watch) -> None:
            await watch.newer(7)
            woken.append(watch)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, own)
            nursery.start_soon(wait, all_of_them)
            await wait_all_tasks_blocked()
            assert not woken
            events.caught_up(number)
        assert set(woken) == {own, all_of_them}
        with trio.move_on_after(1):
            await own.newer(max(7, number))
            raise AssertionError("it was woken twice")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(own.newer, number)
            await wait_all_tasks_blocked()
            events.changed(Change("job_1", 2, "acme", number + 1))
