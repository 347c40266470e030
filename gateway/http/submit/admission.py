"""What a new job goes through whatever it is made of: a body, or an earlier job that is repeated."""

import re
from typing import Final

from gateway.audit import Refusal
from gateway.http.message import Request
from gateway.problems import ApiError
from gateway.registry import ExternalForbidden, RegistryError, Route
from gateway.services import Services
from store.errors import StoreUnavailable

PARENT: Final = "job"
"""Operation of a group."""
CHILD: Final = "job_child"
"""Operation of its children."""


def route_for(
    services: Services, request: Request, tenant: str, model: str | None, operation: str | None
) -> Route:
    """Where a job of this tenant goes. That an external upstream is refused is audited.

    Args:
        services: of the gateway.
        request: who asks.
        tenant: whose job it is to be.
        model: as asked for, or None.
        operation: as asked for; None: the model's own.

    Raises:
        ApiError: MODEL_UNKNOWN, EXTERNAL_UPSTREAM_FORBIDDEN, INVALID_REQUEST.
    """
    try:
        return services.registry.resolve(model, operation, services.config.limits_of(tenant).models)
    except RegistryError as error:
        raise refusal_of(services, request, tenant, operation, error) from error


def refusal_of(
    services: Services, request: Request, tenant: str, operation: str | None, error: RegistryError
) -> ApiError:
    """The refusal of a request that leads to no upstream; one of an external upstream is audited.

    Args:
        services: of the gateway.
        request: who asks.
        tenant: for whom.
        operation: as asked for; None: the model's own.
        error: what the registry said.
    """
    refusal = ApiError(error.code, str(error))
    if isinstance(error, ExternalForbidden):
        services.emitter.refused(
            Refusal(
                error_code=error.code,
                http_status=refusal.status,
                trace_id=request.request_id,
                tenant=tenant,
                surface=request.head.header("x-surface"),
                user_id=request.head.header("x-user-id"),
                operation=operation or error.upstream.operation,
                model=error.model,
                upstream=error.upstream.name,
            )
        )
    return refusal


def unknown_outcome(services: Services, error: StoreUnavailable, job_id: str) -> Exception:
    """What to raise when the store gave no answer to the making of a job: the answer names the one that may exist."""
    if error.outcome != "unknown":
        return error
    services.outage.failed("creating a job", error)
    return ApiError(
        "STORE_UNAVAILABLE",
        "the job store gave no answer in time; the job may exist",
        members={"job_id": job_id},
    )


def count_submit(
    services: Services, tenant: str, route: Route | None, outcome: str | Exception, *, is_group: bool = False
) -> None:
    """Count a submit by its outcome; a refusal is its code, or what it is called, in lower case. A group is one."""
    if isinstance(outcome, ApiError):
        label = outcome.code.lower()
    elif isinstance(outcome, Exception):
        label = re.sub(r"(?<!^)(?=[A-Z])", "_", type(outcome).__name__).lower()
    else:
        label = outcome
    metrics = services.metrics
    metrics.jobs_submitted_total.labels(
        metrics.tenant_label(tenant),
        "" if route is None else route.upstream.name,
        PARENT if is_group else "" if route is None else route.operation,
        label,
    ).inc()
