"""Quart's connection class: what Quart answers, carried by our own exchange (`exchange` says why)."""

from typing import Any, Protocol, cast

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable
from quart.wrappers import Request, Response
from quart_trio.asgi import TrioASGIHTTPConnection

from gateway.http.body import RequestBody
from gateway.http.exchange import Answer, Exchange, Send
from gateway.http.inbox import Receive
from gateway.services import Activity


class Served(Protocol):
    """What the connection needs of the app it serves."""

    read_timeout_s: float
    activity: Activity

    async def handle_request(self, request: Request) -> Response:
        """The answer, whatever happens inside."""
        ...

    def cut(self, scope: Any) -> Answer:
        """The answer when the server ends."""
        ...

    def answered(self, request: Request, status: int, seconds: float) -> None:
        """Count a request whose answer has ended."""
        ...


class Connection(TrioASGIHTTPConnection):
    """Serves one request. The instance lives as long as the request."""

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Run the handler, send what it answers."""
        request = self._create_request_from_scope(send)
        app = cast("Served", self.app)
        exchange = Exchange(self.scope, cast("Receive", receive), cast("Send", send), app.activity)
        cast("dict[str, Any]", self.scope["state"])["exchange"] = exchange

        async def handle(body: RequestBody) -> Answer:
            request.body = cast("Any", body)
            return _answer(await app.handle_request(request), head_only=request.method == "HEAD")

        began = trio.current_time()
        try:
            await exchange.run(app.read_timeout_s, handle, lambda: app.cut(self.scope))
        finally:
            app.answered(request, exchange.status, trio.current_time() - began)


def _answer(response: Response, *, head_only: bool) -> Answer:
    # A value that was read from a header elsewhere (a result's type) goes out as the bytes that it was.
    headers = [
        (name.lower().encode(), value.encode("latin-1", "replace")) for name, value in response.headers
    ]
    return Answer(response.status_code, headers, cast("Any", response.response), head_only)
