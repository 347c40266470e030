"""One attempt's call: at the endpoint of its lease, and at another one when there was no connection to be had.

Only a failure before the first byte moves on: whatever was sent may have been begun, and billed. The lease moves with
the call, in one step of the store, so the slots stay exact and the record names the endpoint that is called. Every
end but a cancellation tells the endpoint's health what it says about it, before the slot is given back.
"""

from typing import final

from msgspec import structs

from adapters.base import AdapterError, Call, Outcome
from gateway.logs import get_logger
from gateway.manager.execution import ClaimLost, Execution
from gateway.manager.upstreams import Target
from gateway.outage import Outage
from store.api import JobStore
from store.errors import StoreUnavailable

log = get_logger(__name__)


@final
class Failover:
    """Makes calls. Keeps nothing between them.

    Args:
        jobs: where leases move.
        outage: hears of a store that gives no answer.
    """

    def __init__(self, jobs: JobStore, outage: Outage) -> None:
        self._jobs = jobs
        self._outage = outage

    async def run(self, call: Call, execution: Execution, target: Target) -> Outcome:
        """Make one attempt's call. The caller holds claim, lease and deadline.

        Raises:
            AdapterError: of the last endpoint that was tried.
            ClaimLost: noticed while the lease was to move.
        """
        end = await self._try(call, execution, target)
        tried = [call.endpoint]
        while isinstance(end, AdapterError) and end.nothing_sent:
            endpoint = await self._move(execution, target, tried)
            if endpoint is None:
                break
            end = await self._try(structs.replace(call, endpoint=endpoint), execution, target)
            tried.append(endpoint)
        if isinstance(end, AdapterError):
            raise end
        return end

    async def _try(self, call: Call, execution: Execution, target: Target) -> Outcome | AdapterError:
        """Call one endpoint, and tell its health how that went."""
        try:
            answer = await target.adapter.run(call, execution)
        except AdapterError as failure:
            target.health.failed(call.endpoint, failure.kind)
            return failure
        target.health.succeeded(call.endpoint)
        return answer

    async def _move(self, execution: Execution, target: Target, tried: list[str]) -> str | None:
        """Move the lease to an endpoint that was not tried yet; None when there is none to be had."""
        job, token = execution.claimed.job, execution.claimed.token
        try:
            lease = await self._jobs.move(job.id, token, target.health.slots(), tried)
        except StoreUnavailable as error:
            self._outage.failed("moving a call to another endpoint", error)
            return None
        if lease is False:
            raise ClaimLost(job.id)
        if lease is None:
            return None
        log.warning(
            "moved to another endpoint",
            job_id=job.id,
            trace_id=job.trace_id,
            upstream=lease.upstream,
            endpoint=lease.endpoint,
            without_connection=tried,
        )
        return lease.endpoint
