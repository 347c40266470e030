"""Everybody's jobs on the admin bind, and a reclaim pass for whoever does not want to wait for the next.

The handlers are those of the public bind: for an operator they show and do the same with any tenant's jobs, tell
besides whose a job is and where it runs, and have each look audited.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from gateway.http.actions import note_action
from gateway.http.body import read_all
from gateway.http.control import MAX_IGNORED_BYTES
from gateway.http.message import Reply, Request, json_reply
from gateway.http.public import ROUTES as PUBLIC_ROUTES
from gateway.http.routing import Handler, Route
from gateway.manager.housekeeping import ReclaimSuspended
from gateway.problems import ApiError
from gateway.services import Services
from store.values import Reclaimed

Reclaim = Callable[[], Awaitable[Reclaimed]]
"""Makes a pass (`gateway.manager.housekeeping.Reclaimer.reclaim_now`)."""

ROUTES: Final = tuple(
    Route(route.method, f"/admin{route.template}", route.handler, route.name)
    for route in PUBLIC_ROUTES
    if route.name != "submit_job"
)


def reclaiming(reclaim: Reclaim) -> Handler:
    """`POST /admin/reclaim`: claims whose holder died are taken back now; 200 and how many."""

    async def handle(services: Services, request: Request) -> Reply:
        await read_all(request, MAX_IGNORED_BYTES)
        try:
            reclaimed = await reclaim()
        except ReclaimSuspended as error:
            raise ApiError(
                "STORE_UNAVAILABLE",
                "the store has not been steady for long enough to tell the dead from the living; nothing was taken back",
            ) from error
        if reclaimed.requeued or reclaimed.failed:
            note_action(services, request, "reclaim", "claims")
        return json_reply({"requeued": reclaimed.requeued, "failed": reclaimed.failed})

    return handle
