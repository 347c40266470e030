"""A Quart app out of a table of routes, with a short way past Quart.

What a route does is a handler free of any framework (`message`). A request whose method and path are a route's goes to
it directly (`_serve_route`), which saves Quart's share of the time; whatever else comes (HEAD, OPTIONS, a trailing
slash, unknown paths and methods) is Quart's business. Around each handler stands the same frame on both ways:

    head ─▶ caller ─▶ handler ─▶ reply          whatever is raised on the way becomes a problem document

- Routing looks at the path and the method alone, never at Host or query. A trailing slash is not an error. HEAD
  comes with GET, OPTIONS with every path.
- Every answer carries Cache-Control: no-store and X-Request-Id. The caller's own id wins; without one a handler may
  name another (a job's trace_id); else it is the request's.
- Requests are counted by the template of their route, so no client makes a new label.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, cast

import trio
from quart import request as current_request
from quart.wrappers import Request as QuartRequest
from quart.wrappers.response import Response, ResponseBody
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter, Map, MapAdapter

from gateway.http.body import RequestBody
from gateway.http.connection import Connection
from gateway.http.exchange import CLIENT_GONE, Answer, Exchange
from gateway.http.message import Caller, ClientGone, Head, Reply, Request
from gateway.http.problem_map import ProblemMap
from gateway.http.request_head import (
    REQUEST_ID_HEADER,
    Headers,
    RequestId,
    head_of,
    headers_of,
    request_id_of,
)
from gateway.http.retry_after import RetryAfter
from gateway.http.routing import Route, Router, Wording, words_beside
from gateway.problems import ApiError
from gateway.services import Activity, Derived, Services
from store.errors import StoreUnavailable

UNMATCHED: Final = "unmatched"
"""Route label of requests that meet no route."""
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Method labels; all others count as `other`."""
NO_CONTENT: Final = 204
"""Such an answer has no Content-Length either (RFC 9110, section 8.6)."""
CLOSE_BODY_S: Final = 1.0
"""Bound of closing a reply's body, whatever was cancelled."""


Identify = Callable[[Route, Head, str], Caller]
"""Finds the caller of a route from the head and the request id; raises ApiError to refuse."""


class App(QuartTrio):
    """Serves the routes of one bind.

    Args:
        services: handed to every handler.
        routes: the table.
        identify: who is asking, asked before each handler.
    """

    asgi_http_class = Connection

    def __init__(self, services: Services, routes: Sequence[Route], identify: Identify) -> None:
        super().__init__(__name__, static_folder=None, template_folder=None)
        self.read_timeout_s: float = services.config.server.read_timeout_s
        self.activity: Activity = services.activity
        self._services = services
        self._identify = identify
        self._routes = {route.name: route for route in routes}
        self._router = Router(routes)
        self._problems = Derived(
            services,
            lambda latest: ProblemMap(RetryAfter(latest.config, latest.store, latest.gate), latest.outage),
        )
        self.url_map.strict_slashes = False
        self.url_map.merge_slashes = False
        self.register_error_handler(HTTPException, self._refuse)
        self.after_request(self._complete)
        self.url_map.converters["segment"] = Segment
        for route in routes:
            self.add_url_rule(_rule(route, routes), route.name, self._view(route), methods=[route.method])

    def create_url_adapter(self, request: object) -> MapAdapter | None:
        """Bind the routes to a request's method and path; its Host is no business of routing."""
        if request is None:
            return None
        asked = cast("QuartRequest", request)
        return self.url_map.bind("localhost", default_method=asked.method, path_info=asked.path)

    async def make_default_options_response(self) -> Response:
        """The answer to OPTIONS: the methods of the path, and no content."""
        response = await super().make_default_options_response()
        response.headers.remove("Content-Type")
        return response

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # Any: ASGI
        """Serve one request (ASGI)."""
        if scope["type"] == "http":
            scope["path"] = origin_form(scope["path"])
            found = self._router.find(scope["method"], scope["path"])
            if found is not None:
                await self._serve_route(*found, scope, receive, send)
                return
        await super().__call__(scope, receive, send)

    async def _serve_route(
        self, route: Route, path_params: dict[str, str], scope: Any, receive: Any, send: Any
    ) -> None:
        exchange = Exchange(scope, receive, send, self.activity)
        scope["state"]["exchange"] = exchange

        async def handle(body: RequestBody) -> Answer:
            reply = await self._handled(route, path_params, scope, body)
            return _answer(reply, _request_id(scope))

        began = trio.current_time()
        try:
            await exchange.run(self.read_timeout_s, handle, partial(_cut, scope, route.wording))
        except* StoreUnavailable as group:
            # It went away in the middle of an answer: the connection is cut already, and that is what the client sees.
            self._services.outage.failed("sending an answer", group)
        finally:
            self._count(route.template, route.method, exchange.status, trio.current_time() - began)

    def cut(self, scope: Any) -> Answer:
        """What a request of Quart's is answered with when the server ends under it."""
        return _cut(scope, self._router.wording(scope["path"]))

    def answered(self, request: QuartRequest, status: int, seconds: float) -> None:
        """Count a request that Quart served and whose answer has ended."""
        rule = request.url_rule
        route = self._routes[rule.endpoint].template if rule is not None else UNMATCHED
        method = request.method if request.method in METHODS else "other"
        self._count(route, method, status, seconds)

    def _count(self, route: str, method: str, status: int, seconds: float) -> None:
        metrics = self._services.metrics
        metrics.requests_total.labels(route, method, str(status)).inc()
        metrics.request_seconds.labels(route).observe(seconds)

    def _view(self, route: Route) -> Callable[..., Awaitable[Response]]:
        async def view(**path_params: str) -> Response:
            scope = current_request.scope
            body = cast("RequestBody", current_request.body)
            return _response(await self._handled(route, path_params, scope, body))

        return view

    async def _handled(
        self, route: Route, path_params: dict[str, str], scope: Any, body: RequestBody
    ) -> Reply:
        """The reply of a route's handler, or the problem it met."""
        request_id = _request_id(scope)
        services = self._services.latest
        try:
            head = head_of(scope, _headers(scope))
            caller = self._identify(route, head, request_id.value)
            request = Request(
                head=head,
                caller=caller,
                body=body,
                request_id=request_id.value,
                own_request_id=request_id.own,
                out=_Out(scope["state"]["exchange"], request_id),
            )
            return await route.handler(services, request, **path_params)
        except ClientGone:
            return Reply(status=CLIENT_GONE)  # nobody is there to read it
        except Exception as error:  # noqa: BLE001  # the HTTP problem mapper
            return await self._problems.now.reply(error, request_id, route.wording)

    async def _refuse(self, error: HTTPException) -> Response:
        """What Quart itself refuses: unknown paths and methods."""
        wording = self._router.wording(current_request.path)
        return _response(await self._problems.now.reply(error, _request_id(current_request.scope), wording))

    async def _complete(self, response: Response) -> Response:
        for name, value in _frame([*response.headers.keys()], _request_id(current_request.scope)).items():
            response.headers[name] = value
        return response


class Segment(BaseConverter):
    """A segment of a path that is none of some words (`routing.words_beside`)."""

    def __init__(self, url_map: Map, *words: str) -> None:
        super().__init__(url_map)
        self.regex = "".join(f"(?!{re.escape(word)}$)" for word in words) + "[^/]+"


def _rule(route: Route, routes: Sequence[Route]) -> str:
    """A route's template as Quart has it."""
    rule = route.template
    for name, words in words_beside(routes, route.template).items():
        rule = rule.replace(f"{{{name}}}", f"<segment({','.join(words)}):{name}>" if words else f"<{name}>")
    return rule


def origin_form(path: str) -> str:
    """The path of a request target in origin form (RFC 9112, section 3.2): absolute and asterisk forms become one."""
    if path.startswith("/"):
        return path
    _, scheme, rest = path.partition("://")
    if not scheme:
        return "/" + path
    return "/" + rest.partition("/")[2]


def _request_id(scope: Any) -> RequestId:
    """The id of the request being served, found once."""
    state = scope["state"]
    if "request_id" not in state:
        state["request_id"] = request_id_of(_headers(scope))
    return cast("RequestId", state["request_id"])


def _headers(scope: Any) -> Headers:
    """The headers of the request being served, read once."""
    state = scope["state"]
    if "headers" not in state:
        state["headers"] = headers_of(scope)
    return cast("Headers", state["headers"])


def _frame(names: Collection[str], request_id: RequestId) -> dict[str, str]:
    """The headers that every answer has, beside those it has already. The caller's own id stands in any case."""
    frame = {} if "Cache-Control" in names else {"Cache-Control": "no-store"}
    if request_id.own or REQUEST_ID_HEADER not in names:
        frame[REQUEST_ID_HEADER] = request_id.value
    return frame


def _answer(reply: Reply, request_id: RequestId) -> Answer:
    """A reply as it goes out without Quart."""
    headers = dict(reply.headers)
    if reply.content_type is not None:
        headers["Content-Type"] = reply.content_type
    if isinstance(reply.body, bytes) and reply.status != NO_CONTENT:
        headers["Content-Length"] = str(len(reply.body))
    body = reply.body if isinstance(reply.body, bytes) else _StreamedBody(reply.body)
    return Answer(reply.status, _encoded(headers, request_id), body)


def _cut(scope: Any, wording: Wording) -> Answer:
    """What is told to a request that the end of the process cuts."""
    error, request_id = (
        ApiError("DRAINING", "this gateway ends, and the request had no more time"),
        _request_id(scope),
    )
    body, content_type = wording(error, request_id.value)
    return _answer(Reply(status=error.status, body=body, content_type=content_type), request_id)


def _encoded(headers: Mapping[str, str], request_id: RequestId) -> list[tuple[bytes, bytes]]:
    """Headers as they go out, with those that every answer has."""
    framed = {**headers, **_frame(headers.keys(), request_id)}
    # A value that was read from a header elsewhere (a result's type) goes out as the bytes that it was.
    return [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in framed.items()]


class _Out:
    """The exchange of a request, for a handler that answers by itself (`message.Out`)."""

    def __init__(self, exchange: Exchange, request_id: RequestId) -> None:
        self._exchange = exchange
        self._request_id = request_id

    @property
    def begun(self) -> bool:
        return self._exchange.begun

    @property
    def client_gone(self) -> bool:
        return self._exchange.client_gone

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        if not await self._exchange.begin(status, _encoded(headers, self._request_id)):
            raise ClientGone

    async def send(self, piece: bytes) -> None:
        await self._exchange.send(piece)

    async def end(self, last: bytes = b"") -> None:
        await self._exchange.end(last)


class _StreamedBody(ResponseBody):
    """A reply's body as Quart sends it: iterated once, closed on every way out."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces

    async def __aenter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        aclose = getattr(self._pieces, "aclose", None)
        if aclose is not None:
            with trio.move_on_after(CLOSE_BODY_S, shield=True):
                await aclose()


def _response(reply: Reply) -> Response:
    body = reply.body if isinstance(reply.body, bytes) else _StreamedBody(reply.body)
    response = Response(body, reply.status, dict(reply.headers), content_type=reply.content_type)
    if reply.content_type is None:
        response.headers.remove("Content-Type")
    if reply.status == NO_CONTENT:
        response.headers.remove("Content-Length")
    return response
