"""The tasks of one connection, with an inbox of our own for each request."""

from collections.abc import Awaitable, Callable
from typing import cast

import trio
from hypercorn.config import Config
from hypercorn.trio.task_group import TaskGroup, _handle
from hypercorn.typing import AppWrapper, ASGIReceiveCallable, ASGIReceiveEvent, ASGISendEvent, Scope

from gateway.http.inbox import Inbox


class Tasks(TaskGroup):
    """The tasks of one connection, and the inbox of the request under way."""

    inbox: Inbox

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start the application for a request; gives what puts messages into its inbox."""
        inbox = self.inbox = Inbox(config.max_app_queue_size)
        receive = cast("ASGIReceiveCallable", inbox)
        nursery = cast("trio.Nursery", self._nursery)
        nursery.start_soon(
            _handle, app, config, scope, receive, send, trio.to_thread.run_sync, trio.from_thread.run
        )
        return cast("Callable[[ASGIReceiveEvent], Awaitable[None]]", inbox.put)
