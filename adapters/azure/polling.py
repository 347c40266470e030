"""The requests about one operation, and the loop that follows it to its end.

An accepted operation is paid for. So the loop ends with the operation, or when the caller cancels it at the deadline;
whatever may pass (a rate limit, a server error, a lost connection) is waited out, and nothing is submitted again.
"""

from contextlib import suppress
from typing import Final, final

import trio

from adapters.api_key import ApiKey
from adapters.azure.errors import OperationGone, failed_operation, service_words
from adapters.azure.operation import Operation
from adapters.azure.pace import Pace, Verdict, progress_of, verdict_on
from adapters.azure.status import OperationBody, Phase, page_count, read_operation
from adapters.base import EXCERPT_BYTES, AdapterError, Kind, Outcome, Report
from adapters.http import NO_BODY, HttpClient, Request
from adapters.outcome import Expectation, read_outcome
from adapters.post import ACCEPT

CLIENT_REQUEST_ID: Final = "x-ms-client-request-id"
"""One value for the submit and all polls of an attempt, as the official clients do."""

HEAD_WAIT_S: Final = 60.0
"""A poll without a head of an answer for so long is a lost connection. Its body may take as long as it takes."""

DELETE_S: Final = 2.0
"""Bound of the shielded delete."""


@final
class Operations:
    """Asks about operations, with the key.

    Args:
        client: the upstream's connections.
        api_key: the gateway's key for it.
        expected: what an answer must be.
        request_id: of the attempt.
    """

    def __init__(
        self, client: HttpClient, api_key: ApiKey | None, expected: Expectation, request_id: str
    ) -> None:
        self._client = client
        self._api_key = api_key
        self._expected = expected
        self.request_id = request_id

    async def delete(self, operation: Operation) -> None:
        """Have the service forget document and result now instead of after a day. Best effort: shielded, bounded."""
        with trio.move_on_after(DELETE_S, shield=True), suppress(AdapterError):
            async with self._client.open(self._request("DELETE", operation)) as answer:
                await answer.excerpt(EXCERPT_BYTES)

    async def follow(
        self, operation: Operation, pace: Pace, report: Report, *, age_s: float, wait_s: float
    ) -> Outcome:
        """Poll until the operation ends; reports `analyzing`.

        Args:
            operation: checked: it gets the key.
            pace: when to ask.
            report: told how far it is.
            age_s: time since the operation was accepted.
            wait_s: before the first poll.

        Raises:
            OperationEnded: it failed, or the service does not know it any more.
            AdapterError: the service refuses to say, or what it says is no operation.
        """
        accepted_at = trio.current_time() - age_s
        while True:
            await trio.sleep(wait_s)
            try:
                answer, retry_after_s = await self._poll(operation)
            except AdapterError as error:
                verdict = verdict_on(error, trio.current_time() - accepted_at)
                if verdict is Verdict.GONE:
                    raise OperationGone(operation.id) from error
                if verdict is Verdict.FAIL:
                    raise
                retry_after_s = error.retry_after_s
            else:
                body = self.read(answer, self._request("GET", operation).origin)
                if body.phase is Phase.SUCCEEDED:
                    return result_of(body, answer, operation.id)
                report("analyzing", progress_of(body.percent, trio.current_time() - accepted_at))
            wait_s = pace.next_wait_s(retry_after_s)

    def read(self, answer: Outcome, origin: str) -> OperationBody:
        """The operation that an answer shows, running or succeeded.

        Raises:
            OperationEnded: it failed.
            AdapterError: parse, it is no operation, or one that succeeded without a result.
        """
        try:
            body = read_operation(answer.body)
        except ValueError as error:
            raise _no_operation(
                f"{origin} answered {answer.http_status}, but with no operation: {error}"
            ) from error
        if body.phase is Phase.FAILED:
            raise failed_operation(origin, body.status, bytes(body.error), self._api_key)
        if body.phase is Phase.SUCCEEDED and bytes(body.analyze_result) == b"null":
            raise _no_operation(f"{origin} reports {body.status} without an analyzeResult")
        return body

    async def _poll(self, operation: Operation) -> tuple[Outcome, float | None]:
        with trio.move_on_after(HEAD_WAIT_S) as patience:
            async with self._client.open(self._request("GET", operation)) as answer:
                patience.deadline = float("inf")
                with service_words():
                    outcome = await read_outcome(answer, self._expected, self._api_key)
                return outcome, answer.retry_after_s
        raise AdapterError(Kind.CONNECT, "UPSTREAM_CONNECT", f"no answer to a poll within {HEAD_WAIT_S:g} s")

    def _request(self, method: str, operation: Operation) -> Request:
        headers = [("Accept", ACCEPT), (CLIENT_REQUEST_ID, self.request_id)]
        if self._api_key is not None:
            headers.append(self._api_key.as_header())
        return Request(method=method, url=operation.url, headers=headers, body=NO_BODY)


def result_of(body: OperationBody, answer: Outcome, request_id: str | None) -> Outcome:
    """The outcome of an operation that succeeded: its `analyzeResult`, byte for byte.

    Args:
        body: what the operation says.
        answer: in which it says so.
        request_id: what the service calls the operation.
    """
    return Outcome(
        body=bytes(body.analyze_result),
        content_type="application/json",
        http_status=answer.http_status,
        pages=page_count(body.analyze_result),
        upstream_request_id=request_id,
    )


def _no_operation(message: str) -> AdapterError:
    return AdapterError(Kind.PARSE, "UPSTREAM_PARSE", message)
