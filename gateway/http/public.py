"""The routes of the public bind."""

from typing import Final

from gateway.http.app import App
from gateway.http.bulk import cancel_jobs
from gateway.http.control import cancel_job, delete_job, interrupt_job, pause_job, resume_job
from gateway.http.deliveries import get_deliveries, redeliver
from gateway.http.events import get_events, get_job_events
from gateway.http.jobs import get_job, get_result, wait_job
from gateway.http.listing import list_jobs
from gateway.http.message import Caller, Head
from gateway.http.openapi import OPEN_ROUTES, Description
from gateway.http.retry import retry_job
from gateway.http.routing import Route
from gateway.http.submit import submit_job
from gateway.http.tenancy import Tenancy
from gateway.http.wait_many import wait_jobs
from gateway.llm.routes import LLM_ROUTES
from gateway.services import Derived, Services

WATCH_ROUTES: Final = (
    Route("GET", "/jobs/{job_id}", get_job, "get_job"),
    Route("GET", "/jobs/{job_id}/wait", wait_job, "wait_job"),
    Route("GET", "/jobs/{job_id}/result", get_result, "get_result"),
    Route("GET", "/jobs/{job_id}/events", get_job_events, "get_job_events"),
    Route("GET", "/jobs/{job_id}/deliveries", get_deliveries, "get_deliveries"),
    Route("POST", "/jobs/wait", wait_jobs, "wait_jobs"),
    Route("GET", "/events", get_events, "get_events"),
)
"""By which people see what becomes of jobs."""
CONTROL_ROUTES: Final = (
    Route("POST", "/jobs/cancel", cancel_jobs, "cancel_jobs"),
    Route("POST", "/jobs/{job_id}/cancel", cancel_job, "cancel_job"),
    Route("POST", "/jobs/{job_id}/retry", retry_job, "retry_job"),
    Route("POST", "/jobs/{job_id}/pause", pause_job, "pause_job"),
    Route("POST", "/jobs/{job_id}/interrupt", interrupt_job, "interrupt_job"),
    Route("POST", "/jobs/{job_id}/resume", resume_job, "resume_job"),
    Route("POST", "/jobs/{job_id}/deliveries/{n}/redeliver", redeliver, "redeliver"),
    Route("DELETE", "/jobs/{job_id}", delete_job, "delete_job"),
)
"""By which people act on jobs."""
ROUTES: Final = (
    Route("POST", "/jobs", submit_job, "submit_job"),
    Route("GET", "/jobs", list_jobs, "list_jobs"),
    *WATCH_ROUTES,
    *CONTROL_ROUTES,
    *LLM_ROUTES,
)
"""What is served beside its own description."""
ANYBODY: Final = Caller("")


def make_public_app(services: Services) -> App:
    """The app of the public bind."""
    tenancy = Derived(services, lambda latest: Tenancy(latest.config, latest.emitter))

    def identify(route: Route, head: Head, request_id: str) -> Caller:
        return ANYBODY if route.name in OPEN_ROUTES else tenancy.now.caller(head, request_id)

    return App(services, Description(ROUTES).routes, identify)
