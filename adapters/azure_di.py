"""azure-di: submit a document to Azure Document Intelligence, follow the operation to its result.

    resume ── a saved operation that may be polled ──▶ follow ──▶ analyzeResult
       │                                                 ▲  │
       └─ none ─▶ submit ── 202, Operation-Location ──▶ save │ gone, when resumed: submit anew
                    └────── 200, a finished operation ──▶ analyzeResult

Rules
- The operation's URL is saved with the job before the first poll, so that a later attempt continues what is paid for.
  When the service no longer knows a resumed operation, nothing came of it: it is submitted anew within the attempt.
- An operation that ended without a result is forgotten (`FORGOTTEN` is saved): the next attempt submits anew.
- With `delete_results` the service is told to forget an operation when its result is here, and when the deadline
  of the attempt has passed; not when the call was cancelled before, since it may be continued then.
- The key goes to the endpoint and to hosts that the configuration lists (`azure.operation`).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import random
from typing import Final, final
from urllib.parse import quote
from uuid import uuid4

import trio
from msgspec import Struct

from adapters.api_key import ApiKey
from adapters.azure.errors import OperationEnded, OperationGone, service_words
from adapters.azure.operation import FORGOTTEN, Locations, Operation
from adapters.azure.pace import Pace
from adapters.azure.polling import CLIENT_REQUEST_ID, Operations, result_of
from adapters.azure.status import Phase
from adapters.base import EXCERPT_BYTES, AdapterError, Call, Kind, Outcome, Report
from adapters.forms import raw
from adapters.http import HttpClient, Request
from adapters.http_answer import Answer, WallClock
from adapters.outcome import MAX_RESPONSE_BYTES, Expectation, read_outcome
from adapters.post import submit_headers, submit_url

API_VERSION: Final = "api-version"

FORGET_S: Final = 2.0
"""Bound of the shielded write that an operation is over. Without it the next attempt learns it from the service."""


class PollOptions(Struct, frozen=True, kw_only=True):
    """How an operation is followed; names as in the configuration."""

    min_interval_s: float = 0.5
    max_interval_s: float = 5.0
    allowed_hosts: tuple[str, ...] = ()
    """Further hosts that an operation may be at; they get the key."""
    rewrite_host: bool = False
    """An operation at another host is polled at the endpoint instead."""
    delete_results: bool = False
    """Delete what the service keeps (it would for 24 h)."""


class AzureDiOptions(Struct, frozen=True, kw_only=True):
    """How one resource is called; names as in the configuration."""

    submit_path: str
    """Begins with a slash; `{model}` stands for the model."""
    api_version: str = "2024-11-30"
    poll: PollOptions = PollOptions()
    max_response_bytes: int = MAX_RESPONSE_BYTES


@final
class AzureDi:
    """Adapter for Azure Document Intelligence.

    Args:
        options: how it is called.
        client: its connections.
        api_key: the gateway's key for it; None: it needs none (a container).
        wall_clock: tells the age of an operation that an earlier attempt submitted.
        chance: gives numbers of 0 to 1, for jitter.
    """

    def __init__(
        self,
        options: AzureDiOptions,
        client: HttpClient,
        api_key: ApiKey | None,
        wall_clock: WallClock,
        chance: Callable[[], float] = random,
    ) -> None:
        self._options = options
        self._client = client
        self._api_key = api_key
        self._wall_clock = wall_clock
        self._chance = chance
        self._expected = Expectation(max_bytes=options.max_response_bytes, must_be_json=True)

    async def run(self, call: Call, report: Report) -> Outcome:
        """Submit the document, or continue what an earlier attempt submitted; see `Adapter.run`.

        Raises:
            AdapterError: the upstream did not deliver.
        """
        poll = self._options.poll
        operations = Operations(self._client, self._api_key, self._expected, str(uuid4()))
        locations = Locations(call.endpoint, poll.allowed_hosts, rewrite_host=poll.rewrite_host)
        resumed = locations.recall(call.resume)
        if resumed is not None:
            with suppress(OperationGone):
                return await self._follow(resumed, 0.0, operations, self._pace(), call, report)
        report("submitting", 0.0)
        async with self._client.open(self._submission(call, operations.request_id)) as answer:
            accepted = await self._accepted(answer, operations, locations)
            if isinstance(accepted, Outcome):
                return accepted
            await report.save(accepted.saved())
            await answer.excerpt(EXCERPT_BYTES)  # nothing: reading it keeps the connection for the polls
        pace = self._pace()
        wait_s = pace.next_wait_s(answer.retry_after_s)
        return await self._follow(accepted, wait_s, operations, pace, call, report)

    def _pace(self) -> Pace:
        return Pace(self._options.poll.min_interval_s, self._options.poll.max_interval_s, self._chance)

    def _submission(self, call: Call, request_id: str) -> Request:
        form = raw(call)
        path = self._options.submit_path.replace("{model}", quote(call.model, safe=""))
        query = [(API_VERSION, self._options.api_version), *_joined(form.query)]
        headers = submit_headers(form.content_type, call.headers, self._api_key)
        return Request(
            method="POST",
            url=submit_url(call.endpoint, path, query),
            headers=[*headers, (CLIENT_REQUEST_ID, request_id)],
            body=form.body,
        )

    async def _accepted(
        self, answer: Answer, operations: Operations, locations: Locations
    ) -> Operation | Outcome:
        """What a submit led to: an operation to follow, or a result at once."""
        if answer.status == 202:
            return Operation(locations.resolve(answer.header("operation-location")), self._wall_clock())
        with service_words():
            finished = await read_outcome(answer, self._expected, self._api_key)
        body = operations.read(finished, answer.origin) if answer.status == 200 else None
        if body is None or body.phase is not Phase.SUCCEEDED:
            raise AdapterError(
                Kind.PARSE,
                "UPSTREAM_PARSE",
                f"{answer.origin} answered {answer.status}; expected 202, or 200 with a finished operation",
                upstream_status=answer.status,
            )
        return result_of(body, finished, answer.header("apim-request-id") or finished.upstream_request_id)

    async def _follow(
        self,
        operation: Operation,
        wait_s: float,
        operations: Operations,
        pace: Pace,
        call: Call,
        report: Report,
    ) -> Outcome:
        """Follow an operation to its end, and see to what the service and the job keep of it."""
        deletes = self._options.poll.delete_results
        age_s = max(0, self._wall_clock() - operation.submitted_ms) / 1000
        report("analyzing", 0.0)
        try:
            outcome = await operations.follow(operation, pace, report, age_s=age_s, wait_s=wait_s)
        except OperationEnded:
            with trio.move_on_after(FORGET_S, shield=True):
                await report.save(FORGOTTEN)
            raise
        except trio.Cancelled:
            if deletes and trio.current_time() >= call.deadline:
                await operations.delete(operation)  # noqa: ASYNC102  shields itself
            raise
        if deletes:
            await operations.delete(operation)
        return outcome


def _joined(query: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Params as the service takes them: a list is one value with commas. The api-version is the configuration's."""
    values: dict[str, list[str]] = {}
    for name, value in query:
        if name.lower() != API_VERSION:
            values.setdefault(name, []).append(value)
    return [(name, ",".join(texts)) for name, texts in values.items()]
