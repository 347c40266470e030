"""The handlers of /v1: what is asked is understood and checked, in this order, before a slot is waited for.

closed gate, encoding, headers      nothing is read yet
body read whole, understood
model, external upstreams           refused by name, and audited
the call                            `call`
"""

from typing import Final, Literal

import trio
from msgspec import Struct

from adapters.llm import CHAT, CHAT_PATH, EMBED, EMBED_PATH
from gateway.audit import Quote
from gateway.config.kinds import PRIORITY_OF
from gateway.drain import Draining
from gateway.http.body import read_all
from gateway.http.message import ANSWERED, Reply, Request, json_reply
from gateway.http.routing import Handler, Route
from gateway.http.submit.admission import refusal_of
from gateway.http.submit.asked import allowed_priority
from gateway.http.submit.digest import Digest
from gateway.http.submit.headers import Origin, origin_of
from gateway.http.submit.options import OptionSet
from gateway.http.submit.upload import announces_encoding
from gateway.llm.asked import Asked, parse_asked
from gateway.llm.call import Call, Plan
from gateway.llm.ending import Ending
from gateway.llm.errors import JSON, as_openai
from gateway.llm.targets import LlmTarget
from gateway.problems import ApiError
from gateway.registry import RegistryError
from gateway.registry import Route as To
from gateway.services import Services
from store.job import PriorityClass

TAKES_STREAM_OPTIONS: Final = frozenset({CHAT_PATH, "/v1/completions"})
"""Where a stream tells its usage only when it is asked for it."""


class Model(Struct, frozen=True, kw_only=True):
    """A model that may be called."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    """Nobody has told the gateway."""
    owned_by: str
    """Its upstream."""


class Models(Struct, frozen=True, kw_only=True):
    """What `GET /v1/models` answers."""

    object: Literal["list"] = "list"
    data: list[Model]


def calling(path: str, operation: str) -> Handler:
    """The handler of a route.

    Args:
        path: of the route, here and at the upstream.
        operation: what it is audited as.
    """

    async def handler(services: Services, request: Request) -> Reply:
        if services.gate.closed:
            raise Draining
        if announces_encoding(request.head):
            raise ApiError(
                "UNSUPPORTED_MEDIA_TYPE", "header content-encoding: expected identity, the body as it is"
            )
        origin, priority = origin_of(request.head), _priority(services, request)
        asked = await parse_asked(await read_all(request, services.config.server.max_json_bytes))
        to = _resolve(services, request, asked.model, operation)
        plan = _plan(_target(services, to), to, asked, path, _headers(request, origin, stream=asked.stream))
        ending = Ending(
            request=request,
            route=to,
            origin=origin,
            priority=priority,
            stream=asked.stream,
            body=await _quote(services, asked.body),
        )
        await Call(services, request, plan, ending).run()
        return ANSWERED

    return handler


async def list_models(services: Services, request: Request) -> Reply:
    """`GET /v1/models`: what the tenant may call."""
    await trio.lowlevel.checkpoint()
    allowed = services.config.limits_of(request.caller.tenant).models
    routes = services.registry.call_models(allowed)
    return json_reply(Models(data=[Model(id=to.model, owned_by=to.upstream.name) for to in routes]))


def _priority(services: Services, request: Request) -> int:
    """The number of X-Priority; interactive without one, and never below the tenant's lowest."""
    named = request.head.header("x-priority")
    priority = PRIORITY_OF[PriorityClass.INTERACTIVE]
    if named is not None:
        options = OptionSet(0)
        options.add_text("priority", named, "header:x-priority")
        priority = options.options().priority or 0
    return allowed_priority(services, request.caller.tenant, priority)


def _resolve(services: Services, request: Request, model: str, operation: str) -> To:
    tenant = request.caller.tenant
    try:
        return services.registry.resolve_call(model, operation, services.config.limits_of(tenant).models)
    except RegistryError as error:
        raise refusal_of(services, request, tenant, operation, error) from error


def _target(services: Services, to: To) -> LlmTarget:
    try:
        return services.llm.of(to.upstream.name)
    except KeyError as error:  # a reload has taken it out since the request began
        raise ApiError("MODEL_UNKNOWN", f"no model {to.model!r}") from error


def _plan(target: LlmTarget, to: To, asked: Asked, path: str, headers: list[tuple[str, str]]) -> Plan:
    upstream = to.upstream
    ask_usage = (
        upstream.inject_usage and asked.stream and path in TAKES_STREAM_OPTIONS and not asked.asks_usage
    )
    if target.key is not None:
        headers = [*headers, target.key.as_header()]
    return Plan(
        target=target,
        path=path,
        body=asked.for_upstream(upstream.model_map.get(to.model, to.model), ask_usage=ask_usage),
        headers=headers,
        strip_usage=ask_usage,
    )


def _headers(request: Request, origin: Origin, *, stream: bool) -> list[tuple[str, str]]:
    """What goes on of the client's headers is its trace; never a credential."""
    accept = "text/event-stream, application/json" if stream else JSON
    headers = [("Content-Type", JSON), ("Accept", accept), ("x-request-id", request.request_id)]
    traced = {"traceparent": origin.traceparent, "tracestate": origin.tracestate}
    return headers + [(name, value) for name, value in traced.items() if value is not None]


async def _quote(services: Services, body: bytes) -> Quote:
    digest = Digest()
    await digest.update(body)
    return Quote(JSON, digest.size, await digest.hexdigest(), body[: services.emitter.quotable(JSON)])


def _call_route(path: str, operation: str, name: str) -> Route:
    return Route("POST", path, calling(path, operation), name, as_openai)


LLM_ROUTES: Final = (
    _call_route(CHAT_PATH, CHAT, "create_chat_completion"),
    _call_route("/v1/completions", CHAT, "create_completion"),
    _call_route(EMBED_PATH, EMBED, "create_embedding"),
    _call_route("/v1/responses", CHAT, "create_response"),
    Route("GET", "/v1/models", list_models, "list_models", as_openai),
)
"""OpenAI's routes."""
