"""What the server hands to one request's handler, received or watched."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gateway.http.inbox import Inbox, Message

FIRST, SECOND, THIRD = ({"type": "http.request", "body": bytes([n])} for n in range(3))


async def test_messages_are_received_in_order() -> None:
    """What was put is received in its order, at once where it is there; what waits for room comes after it."""
    inbox = Inbox(1)
    got: list[Message | None] = []

    async def put_all() -> None:
        for message in (FIRST, SECOND, THIRD):
            await inbox.put(message)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(put_all)
        await wait_all_tasks_blocked()
        assert not inbox.has_room
        got.append(inbox.at_once())
        got.append(inbox.at_once())
        got.append(await inbox())
        got.append(await inbox())
    assert got == [FIRST, None, SECOND, THIRD]


async def test_cancelled_sides_have_done_nothing(autojump_clock: MockClock) -> None:
    """A put that is cancelled has put nothing, a receive that is cancelled has taken nothing."""
    inbox = Inbox(1)
    with trio.move_on_after(1):
        await inbox()
    await inbox.put(FIRST)
    with trio.move_on_after(1):
        await inbox.put(SECOND)
    assert inbox.at_once() == FIRST
    assert inbox.at_once() is None


async def test_watcher_gets_what_waits_and_all_that_comes() -> None:
    """A watcher is handed what waits, then what waited for room, then all that comes; nobody waits for it."""
    inbox = Inbox(1)
    seen: list[Message] = []
    async with trio.open_nursery() as nursery:
        await inbox.put(FIRST)
        nursery.start_soon(inbox.put, SECOND)
        await wait_all_tasks_blocked()
        inbox.watch(seen.append)
        assert seen == [FIRST]
    assert seen == [FIRST, SECOND]
    assert inbox.has_room
    await inbox.put(THIRD)
    assert seen == [FIRST, SECOND, THIRD]


@pytest.mark.parametrize("early", [False, True])
async def test_cut_cancels_whoever_handles_the_request(*, early: bool) -> None:
    """A request that the server gives up is cancelled, also when its handler had not begun yet."""
    inbox = Inbox(1)
    with trio.CancelScope() as scope:
        if early:
            inbox.cut()
        inbox.until_cut(scope)
        if not early:
            inbox.cut()
        await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_client_is_invited_only_when_its_body_is_waited_for() -> None:
    """The word that a body is wanted goes out when it is received, not when it is looked at or watched."""
    inbox = Inbox(1)
    invited: list[str] = []

    async def invite() -> None:
        await trio.lowlevel.checkpoint()
        invited.append("invited")

    inbox.invite = invite
    inbox.at_once()
    assert invited == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(inbox)
        await wait_all_tasks_blocked()
        assert invited == ["invited"]
        await inbox.put(FIRST)
