"""What the head of a submit says, and what of it stands on every record that the submit makes."""

from typing import Any

from msgspec import Struct, structs

from gateway.http.message import Request
from gateway.http.submit.headers import Origin
from gateway.http.submit.options import Options, OptionSet
from gateway.problems import ApiError, invalid, shown
from gateway.registry import Route
from gateway.services import Services
from store.errors import UnknownDependency
from store.job import Job, Submission


class Asked(Struct, frozen=True, kw_only=True):
    """What the head of the request says; the body adds options."""

    options: OptionSet
    origin: Origin
    key: str | None
    """Idempotency key."""


def members_of_all(
    services: Services, request: Request, origin: Origin, options: Options
) -> dict[str, Any]:  # Any: keyword arguments
    """Members of a `Submission` that a job, a group and its children have alike.

    Args:
        services: of the gateway.
        request: who asks.
        origin: of the request.
        options: of the whole submit.
    """
    return {
        "tenant": request.caller.tenant,
        "max_attempts": options.max_attempts or services.config.jobs.max_attempts,
        "trace_id": request.request_id,
        "surface": origin.surface,
        "user_id": origin.user_id,
        "traceparent": origin.traceparent,
        "tracestate": origin.tracestate,
    }


def members_of_one(services: Services, asked: Asked, options: Options) -> dict[str, Any]:
    """Members of a `Submission` that a job and a group have alike, and the children of one have not."""
    jobs, ttl_s = services.config.jobs, options.result_ttl_s
    return {
        "idempotency_key": asked.key,
        "metadata": options.metadata,
        "run_at": options.run_at,
        "callback_url": options.callback_url,
        "after": tuple(dict.fromkeys(options.after or ())),
        "result_ttl_s": None if ttl_s is None else min(ttl_s, jobs.result_ttl_s),
    }


def priority_of(services: Services, tenant: str, options: Options, route: Route) -> int:
    """The priority number of a job: as asked for, else its upstream's; raised to what its tenant may have."""
    priority = route.upstream.priority if options.priority is None else options.priority
    return allowed_priority(services, tenant, priority)


def allowed_priority(services: Services, tenant: str, priority: int) -> int:
    """A priority number, raised to what the tenant may have."""
    return max(priority, services.config.limits_of(tenant).min_priority)


def asked_again(old: Job, renewed: dict[str, Any], **changes: Any) -> Submission:
    """What a record was asked, asked once more.

    Args:
        old: the record.
        renewed: members that are those of the request who asks now.
        changes: other members that are not the old record's.
    """
    kept = {name: getattr(old, name) for name in Submission.__struct_fields__}
    return structs.replace(Submission(**kept), **renewed | changes)


def unknown_dependency(error: UnknownDependency, options: OptionSet) -> ApiError:
    """The refusal of an id in `after`, by its place."""
    index = (options.options().after or ()).index(error.job_id)
    place = options.place_of("after")
    where = f"{place}/{index}" if place.startswith("/") else place
    return invalid(where, f"there is no job {shown(error.job_id)}")
