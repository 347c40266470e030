"""One synchronous call: from its slot to its audit event.

    slot ──▶ attempt at an endpoint ──▶ answer, passed on ──▶ slot given back ──▶ audit, figures
               │  ▲
               └──┘ no connection, or 502, 503, 504, and no byte was passed on: the lease moves to another endpoint, at
                    most once to each

What may happen, and who notices:

    the client leaves                    the request's scope; the upstream's connection is closed at once
    the whole time is over               scope `time`, by its deadline
    no piece of a stream comes           the same scope, its deadline drawn in meanwhile (`relay.Idle`)
    a drain has waited enough            scope of `DrainGate.calling`
    the lease is lost                    `LeaseLost`, when the block of the lease is left
    the upstream does not deliver        AdapterError

What can still be told as an answer is raised. In a stream that has begun it is told as its last event; any other answer
is cut, which its length tells.
"""

from typing import Final, final

import trio
from msgspec import Struct

from adapters.base import AdapterError, Kind
from adapters.http import BytesBody
from adapters.http import Request as Upstream
from adapters.http_answer import Answer
from adapters.outcome import kind_of_status
from gateway.http.message import ClientGone, Request
from gateway.llm.ending import Ending
from gateway.llm.errors import as_event
from gateway.llm.line import Line
from gateway.llm.relay import Idle, Relay
from gateway.llm.targets import LlmTarget
from gateway.logs import get_logger
from gateway.problems import ApiError
from gateway.services import Services
from store.errors import LeaseLost, StoreUnavailable
from store.job import class_of
from store.values import Lease

log = get_logger(__name__)

MOVED_ON: Final = frozenset({502, 503, 504})
"""Answers of whoever stands in front of a server that is not there: another endpoint is tried."""
DRAINED: Final = "the gateway ends, and the call had no more time"


class Plan(Struct, frozen=True, kw_only=True):
    """What is to be called, and how."""

    target: LlmTarget
    path: str
    """Of the route, and of the upstream below its URL."""
    body: bytes
    headers: list[tuple[str, str]]
    """All but Host and Content-Length."""
    strip_usage: bool
    """The usage is asked for by the gateway alone."""


@final
class Call:
    """A call under way.

    Args:
        services: of the gateway.
        request: the client's.
        plan: what is to be called.
        ending: what becomes known of it.
    """

    def __init__(self, services: Services, request: Request, plan: Plan, ending: Ending) -> None:
        self._services = services
        self._out = request.out
        self._plan = plan
        self._ending = ending
        self._tenant = request.caller.tenant
        self._relay = Relay(request.out, ending, services.emitter.quotable)

    async def run(self) -> None:
        """Make the call and answer the client.

        Raises:
            ApiError, Draining, StoreUnavailable: nothing has been answered.
        """
        error: ApiError | None = None
        with self._services.gate.calling() as drained:
            try:
                await self._run(drained)
            except AdapterError as failure:
                error = ApiError(failure.code, failure.message)
            except LeaseLost as lost:
                error = _lost(lost)
        if drained.cancelled_caught:
            error = ApiError("DRAINING", DRAINED)
        if self._ending.is_passed_on:
            await self._out.end()
        elif error is not None:
            await self._tell(error)

    async def _run(self, drained: trio.CancelScope) -> None:
        """Make the call; whatever becomes of it is told to audit and figures once its slot is free."""
        services, ending = self._services, self._ending
        line = Line(services.store.slots, self._plan.target, class_of(ending.priority), self._tenant)
        services.activity.calls += 1
        try:
            with self._plan.target.used():
                await line.in_slot(self._in_slot)
        except AdapterError as failure:
            ending.failed(failure)
            raise
        except ApiError as refusal:
            ending.refused(refusal)
            raise
        except LeaseLost as lost:
            ending.refused(_lost(lost))
            raise
        except StoreUnavailable:
            ending.refused(ApiError("STORE_UNAVAILABLE", "no slot could be asked for"))
            raise
        except BaseException as stopped:
            # Cancelled may come in a group; an Exception that comes here is a defect.
            if not isinstance(stopped, Exception) or isinstance(stopped, ClientGone):
                ending.cancelled("DRAINING" if drained.cancel_called else None)
            raise
        finally:
            services.activity.calls -= 1
            ending.tell(services)

    async def _in_slot(self, lease: Lease) -> None:
        ending, target = self._ending, self._plan.target
        ending.slot_at = began = trio.current_time()
        self._services.metrics.slot_wait_seconds.labels(target.upstream.name, ending.priority_class).observe(
            began - ending.began
        )
        with trio.CancelScope(deadline=began + target.timeout_s) as time:
            idle = Idle(time, target.upstream.stream_idle_timeout_s)
            try:
                await self._attempts(lease, idle)
            finally:
                ending.left_at = trio.current_time()
                target.took(ending.left_at - began)
        if time.cancelled_caught:
            raise _timed_out(target, idle)

    async def _attempts(self, lease: Lease, idle: Idle) -> None:
        """Call the endpoint of the lease, and others while that may help."""
        tried: list[str] = []
        at: Lease | None = lease
        while at is not None:
            lease = at
            tried.append(lease.endpoint)
            self._ending.endpoint = lease.endpoint
            self._ending.attempts += 1
            try:
                at = await self._attempt(lease, tried, idle)
                continue
            except AdapterError as error:
                self._plan.target.health.failed(lease.endpoint, error.kind)
                if not error.nothing_sent:
                    raise
                failure = error
            at = await self._move(lease, tried, failure.message)
            if at is None:
                raise failure

    async def _attempt(self, lease: Lease, tried: list[str], idle: Idle) -> Lease | None:
        """Call one endpoint and pass its answer on; or the lease, moved to where another may be had."""
        at = None
        try:
            async with self._plan.target.client.open(self._request(lease.endpoint)) as answer:
                self._services.store.slots.answered(lease)
                if answer.status in MOVED_ON:
                    at = await self._move(lease, tried, f"it answered {answer.status}")
                if at is None:
                    await self._relay.pass_on(answer, strip_usage=self._plan.strip_usage, idle=idle)
                self._note(answer, lease.endpoint, is_last=at is None)
        finally:
            self._note_first_byte()
        return at

    def _request(self, endpoint: str) -> Upstream:
        plan = self._plan
        return Upstream(
            method="POST", url=endpoint + plan.path, headers=plan.headers, body=BytesBody(plan.body)
        )

    async def _move(self, lease: Lease, tried: list[str], why: str) -> Lease | None:
        """Move the lease to an endpoint that was not tried yet; None when there is none to be had."""
        target = self._plan.target
        if len(tried) == len(target.upstream.endpoints):
            return None
        try:
            moved = await self._services.store.slots.move(lease, target.health.slots(), tried)
        except StoreUnavailable as error:
            self._services.outage.failed("moving a call to another endpoint", error)
            return None
        if moved is not None:
            log.warning(
                "call moved to another endpoint",
                trace_id=self._ending.request.request_id,
                upstream=moved.upstream,
                endpoint=moved.endpoint,
                tried=tried,
                why=why,
            )
        return moved

    def _note(self, answer: Answer, endpoint: str, *, is_last: bool) -> None:
        """An answer is over: what it says about the endpoint, and about the call."""
        failure = None
        if answer.status >= 300:
            failure = kind_of_status(answer.status, asks_to_wait=answer.retry_after_s is not None)
            self._plan.target.health.failed(endpoint, failure[0])
        else:
            self._plan.target.health.succeeded(endpoint)
        if is_last:
            self._ending.passed_on(answer.status, failure)

    def _note_first_byte(self) -> None:
        relay, began = self._relay, self._ending.slot_at
        if relay.first_byte_at is not None and began is not None:
            upstream = self._plan.target.upstream.name
            seconds = relay.first_byte_at - began
            self._services.metrics.time_to_first_byte_seconds.labels(upstream).observe(seconds)

    async def _tell(self, error: ApiError) -> None:
        """Tell the client of an error as it can still be told."""
        if not self._out.begun:
            raise error
        if self._relay.takes_event:
            await self._out.end(self._relay.gap + as_event(error))


def _timed_out(target: LlmTarget, idle: Idle) -> AdapterError:
    if idle.is_over:
        seconds = target.upstream.stream_idle_timeout_s
        return AdapterError(Kind.TIMEOUT, "TIMEOUT", f"the stream paused for more than {seconds:g} s")
    return AdapterError(Kind.TIMEOUT, "TIMEOUT", f"the call took more than {target.timeout_s:g} s")


def _lost(_: LeaseLost) -> ApiError:
    return ApiError(
        "STORE_UNAVAILABLE", "the call was stopped: the store did not let it keep its slot in time"
    )
