"""Pausing upstreams: nothing begins at a paused one, on any replica, until it is resumed, over restarts too."""

from typing import Final

from gateway.http.actions import note_action
from gateway.http.body import read_all
from gateway.http.control import MAX_IGNORED_BYTES
from gateway.http.message import Reply, Request, json_reply
from gateway.http.routing import Route
from gateway.problems import ApiError, shown
from gateway.services import Services


async def pause_upstream(services: Services, request: Request, name: str) -> Reply:
    """`POST /admin/upstreams/{name}/pause`: nothing begins there any more; what runs ends undisturbed."""
    return await _set_paused(services, request, name, paused=True)


async def resume_upstream(services: Services, request: Request, name: str) -> Reply:
    """`POST /admin/upstreams/{name}/resume`: work begins there again."""
    return await _set_paused(services, request, name, paused=False)


async def _set_paused(services: Services, request: Request, name: str, *, paused: bool) -> Reply:
    await read_all(request, MAX_IGNORED_BYTES)
    before = (await services.store.slots.counts(name)).paused
    # One that is configured no more may still be resumed, so that it is not found paused when it comes back.
    if services.registry.upstream(name) is None and not before:
        raise ApiError("UPSTREAM_UNKNOWN", f"there is no upstream {shown(name)}")
    await services.store.jobs.set_paused(name, paused)
    if before is not paused:
        note_action(services, request, "pause" if paused else "resume", name)
    return json_reply({"name": name, "paused": paused})


ROUTES: Final = (
    Route("POST", "/admin/upstreams/{name}/pause", pause_upstream, "pause_upstream"),
    Route("POST", "/admin/upstreams/{name}/resume", resume_upstream, "resume_upstream"),
)
