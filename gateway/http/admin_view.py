"""The figures of the admin side, in the shapes that its readers (dashboard, command line) are promised."""

from typing import Final

from gateway.health import Health, State, UpstreamHealth
from gateway.services import Activity
from store.api import SlotPools
from store.job import PriorityClass, Status
from store.values import Backlog, Counts, SlotCounts, TenantLoad

_LIVE: Final = (Status.PROCESSING, Status.PAUSED, Status.INTERRUPTED)
_ENDED: Final = (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.SUPERSEDED)


async def upstreams_view(health: Health, counts: Counts, slots: SlotPools) -> list[dict[str, object]]:
    """Every configured upstream, in the order of the file."""
    return [_upstream(each, counts, await slots.counts(each.upstream.name)) for each in health]


def _upstream(health: UpstreamHealth, counts: Counts, leased: SlotCounts) -> dict[str, object]:
    upstream = health.upstream
    queued = {
        backlog.priority_class: backlog.queued
        for backlog in counts.backlogs
        if backlog.upstream == upstream.name
    }
    return {
        "name": upstream.name,
        "type": upstream.type,
        "class": upstream.upstream_class,
        "paused": leased.paused,
        "slots": upstream.slots,
        "in_use": sum(leased.in_use.values()),
        "waiting": {each.value: leased.waiting.get(each, 0) for each in PriorityClass},
        "queued": {each.value: queued.get(each, 0) for each in PriorityClass},
        "mean_service_ms": _whole(counts.mean_service_ms.get(upstream.name)),
        "endpoints": [
            {
                "url": endpoint.url,
                "slots": endpoint.slots,
                "in_use": leased.in_use.get(endpoint.url, 0),
                "healthy": state is State.CLOSED,
                "breaker": state.value,
            }
            for endpoint in upstream.endpoints
            for state in [health.breaker(endpoint.url).state]
        ],
    }


def queues_view(counts: Counts) -> dict[str, object]:
    """The ledger in figures; `queued` includes what is delayed."""
    by_status = counts.by_status
    oldest = [backlog.oldest_queued_at for backlog in counts.backlogs if backlog.oldest_queued_at is not None]
    return {
        "queued": by_status.get(Status.QUEUED, 0),
        "delayed": counts.delayed,
        **{status.value: by_status.get(status, 0) for status in _LIVE},
        "terminal": {status.value: by_status.get(status, 0) for status in _ENDED},
        "oldest_queued_ms": max(0, counts.now - min(oldest)) if oldest else None,
        "by_upstream": [_backlog(each, counts.now) for each in counts.backlogs],
        "by_tenant": [_tenant(each) for each in counts.tenants],
    }


def _backlog(backlog: Backlog, now: int) -> dict[str, object]:
    since = backlog.oldest_queued_at
    return {
        "upstream": backlog.upstream,
        "priority_class": backlog.priority_class.value,
        "queued": backlog.queued,
        "processing": backlog.processing,
        "delayed": backlog.delayed,
        "oldest_queued_ms": None if since is None else max(0, now - since),
        "mean_wait_ms": _whole(backlog.mean_wait_ms),
        "mean_run_ms": _whole(backlog.mean_run_ms),
    }


def _tenant(load: TenantLoad) -> dict[str, object]:
    return {
        "tenant": load.tenant,
        "queued": load.queued,
        "processing": load.processing,
        "finished": load.finished,
        "failed": load.failed,
        "mean_wait_ms": _whole(load.mean_wait_ms),
        "mean_run_ms": _whole(load.mean_run_ms),
    }


def drain_view(since: str | None, activity: Activity) -> dict[str, object]:
    """How the drain of this process stands; `since` is None while it takes work."""
    return {
        "draining": since is not None,
        "since": since,
        "processing": activity.jobs,
        "calls": activity.calls,
    }


def _whole(mean_ms: float | None) -> int | None:
    return None if mean_ms is None else round(mean_ms)
