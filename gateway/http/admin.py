"""The admin bind: probes, metrics, what the upstreams and queues look like, everybody's jobs, and draining.

Its own server, so it answers while the public side drains. Probes and draining work without the store; the figures
come from it.
"""

from typing import Final

import trio

from gateway.audit import Action
from gateway.clock import rfc3339
from gateway.config import ConfigError
from gateway.http.admin_guard import AdminGuard
from gateway.http.admin_jobs import ROUTES as JOB_ROUTES
from gateway.http.admin_jobs import Reclaim, reclaiming
from gateway.http.admin_upstreams import ROUTES as UPSTREAM_ROUTES
from gateway.http.admin_view import drain_view, queues_view, upstreams_view
from gateway.http.app import App
from gateway.http.body import read_all
from gateway.http.message import Caller, Head, Reply, Request, json_reply
from gateway.http.routing import Route
from gateway.http.scrape import scrape
from gateway.problems import ApiError, FieldError
from gateway.services import Derived, Services

MAX_WRITE_BYTES: Final = 64 * 1024
"""The most that an admin write may send; today's writes ignore what they are sent."""


async def livez(_services: Services, _request: Request) -> Reply:
    """The process runs and its loop turns."""
    await trio.lowlevel.checkpoint()
    return json_reply({"alive": True})


async def readyz(services: Services, _request: Request) -> Reply:
    """Whether a balancer shall send new work here, and why not."""
    await trio.lowlevel.checkpoint()
    conditions = {
        "starting": not services.started.is_set(),
        "draining": services.gate.draining,
        "store_unavailable": not services.store.available(),
    }
    reasons = [reason for reason, holds in conditions.items() if holds]
    return json_reply({"ready": not reasons, "reasons": reasons}, status=503 if reasons else 200)


async def metrics(services: Services, _request: Request) -> Reply:
    """A Prometheus scrape."""
    body, content_type = await scrape(services)
    return Reply(body=body, content_type=content_type)


async def get_upstreams(services: Services, _request: Request) -> Reply:
    """Slots, waiters and queues of each upstream."""
    counts = await services.store.jobs.counts()
    return json_reply({"upstreams": await upstreams_view(services.health, counts, services.store.slots)})


async def get_queues(services: Services, _request: Request) -> Reply:
    """The ledger in figures."""
    return json_reply(queues_view(await services.store.jobs.counts()))


async def get_drain(services: Services, _request: Request) -> Reply:
    """Whether this process drains, and what still runs."""
    await trio.lowlevel.checkpoint()
    return _drain(services)


async def start_drain(services: Services, request: Request) -> Reply:
    """Begin to drain; whoever supervises the drain closes the gate after `drain_lag_s`. Repeating changes nothing."""
    await read_all(request, MAX_WRITE_BYTES)
    if not services.gate.draining:
        services.gate.begin("asked for by an operator")
        services.emitter.action(_action("drain", request))
    return _drain(services)


async def stop_drain(services: Services, request: Request) -> Reply:
    """Take work again. Without a drain it changes nothing."""
    await read_all(request, MAX_WRITE_BYTES)
    if services.gate.draining:
        services.gate.reopen()
        services.emitter.action(_action("undrain", request))
    return _drain(services)


async def reload(services: Services, request: Request) -> Reply:
    """Read the configuration file again. A bad one, or one that needs a restart, changes nothing."""
    await read_all(request, MAX_WRITE_BYTES)
    if services.reload is None:
        raise ApiError("NOT_FOUND", "this gateway was started without a configuration file")
    try:
        reloaded = await services.reload()
    except ConfigError as error:
        raise ApiError(
            "INVALID_REQUEST",
            "the configuration is refused; the one in force stays",
            errors=[FieldError(fault.path, fault.message) for fault in error.faults],
        ) from error
    services.emitter.action(_action("reload", request))
    return json_reply(reloaded)


ROUTES: Final = (
    Route("GET", "/livez", livez, "livez"),
    Route("GET", "/readyz", readyz, "readyz"),
    Route("GET", "/metrics", metrics, "metrics"),
    Route("GET", "/admin/upstreams", get_upstreams, "get_upstreams"),
    Route("GET", "/admin/queues", get_queues, "get_queues"),
    Route("GET", "/admin/drain", get_drain, "get_drain"),
    Route("POST", "/admin/drain", start_drain, "start_drain"),
    Route("DELETE", "/admin/drain", stop_drain, "stop_drain"),
    Route("POST", "/admin/reload", reload, "reload"),
    *UPSTREAM_ROUTES,
    *JOB_ROUTES,
)


def make_admin_app(services: Services, admin_token: str | None, reclaim: Reclaim) -> App:
    """The app of the admin bind.

    Args:
        services: of the running gateway.
        admin_token: the value that `auth.admin_token_env` names; None when there is none.
        reclaim: makes a reclaim pass.
    """
    guard = Derived(services, lambda latest: AdminGuard(latest.config, admin_token, latest.emitter))

    def identify(route: Route, head: Head, request_id: str) -> Caller:
        return guard.now.caller(route, head, request_id)

    routes = (*ROUTES, Route("POST", "/admin/reclaim", reclaiming(reclaim), "reclaim"))
    return App(services, routes, identify)


def _drain(services: Services) -> Reply:
    """How the drain stands. With Retry-After while something still runs, or may still be accepted."""
    since = services.gate.since
    if since is None:
        return json_reply(drain_view(None, services.activity))
    elapsed_ms = round((trio.current_time() - since) * 1000)
    view = drain_view(rfc3339(services.store.now() - elapsed_ms), services.activity)
    return json_reply(view, headers={} if services.gate.worked_off.is_set() else {"Retry-After": "1"})


def _action(name: str, request: Request) -> Action:
    return Action(
        action=name, actor=request.caller.tenant, target="this replica", trace_id=request.request_id
    )
