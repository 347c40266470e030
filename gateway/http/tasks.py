"""The tasks of one connection, where the server's queue for the handler can be looked at."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import trio
from hypercorn.config import Config
from hypercorn.trio.task_group import TaskGroup
from hypercorn.typing import AppWrapper, ASGIReceiveEvent, ASGISendEvent, Scope


class Tasks(TaskGroup):
    """The tasks of one connection, and the queue of the request under way."""

    _queue: trio.MemorySendChannel[ASGIReceiveEvent]

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start the application for a request; gives what puts messages into its queue, at once while it has room."""
        put: Any = await super().spawn_app(app, config, scope, send)
        # It is a channel's `send`.
        queue = self._queue = cast("trio.MemorySendChannel[ASGIReceiveEvent]", put.__self__)

        async def put_soon(message: ASGIReceiveEvent) -> None:
            try:
                queue.send_nowait(message)
            except trio.WouldBlock:
                await queue.send(message)

        return put_soon

    @property
    def queue_has_room(self) -> bool:
        """Whether the next message is put there without waiting."""
        said = self._queue.statistics()
        return said.current_buffer_used < said.max_buffer_size
