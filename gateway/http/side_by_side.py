"""Calls to the store that are made side by side, so that it takes them together."""

from collections.abc import Awaitable, Callable, Iterable

import trio

from store.errors import StoreUnavailable


async def all_of(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Make calls to the store; each is made whatever becomes of the others.

    Raises:
        StoreUnavailable: that of the first call that got no answer.
    """
    failures: list[StoreUnavailable] = []

    async def make(call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except StoreUnavailable as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(make, call)
    if failures:
        raise failures[0]
