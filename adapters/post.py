"""One POST to an upstream's submit path: what sync-http and classify have in common, and in parts azure-di."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from adapters.api_key import ApiKey
from adapters.base import Call, Outcome, Report
from adapters.forms import Form
from adapters.http import HttpClient, Request
from adapters.outcome import Expectation, read_outcome

TRACE_HEADERS: Final = frozenset({"x-request-id", "traceparent", "tracestate"})
"""The only headers of a client that go on to an upstream."""

ACCEPT: Final = "application/json, */*;q=0.5"

UPLOAD_SHARE: Final = 0.5
"""How far a call is when its body is sent and the answer has not begun."""


class Post:
    """Posts forms to one path of an upstream.

    Args:
        client: the upstream's connections.
        submit_path: begins with a slash; may hold a query.
        api_key: the gateway's own key for this upstream; None: it needs none.
        expected: what an answer must be.
    """

    def __init__(
        self, client: HttpClient, submit_path: str, api_key: ApiKey | None, expected: Expectation
    ) -> None:
        self._client = client
        self._submit_path = submit_path
        self._api_key = api_key
        self._expected = expected

    async def send(self, form: Form, call: Call, report: Report) -> Outcome:
        """Send a form to the call's endpoint and judge the answer.

        Reports `uploading` up to half while the body is sent, then `waiting`.

        Raises:
            AdapterError: the upstream did not deliver.
        """
        request = Request(
            method="POST",
            url=submit_url(call.endpoint, self._submit_path, form.query),
            headers=submit_headers(form.content_type, call.headers, self._api_key),
            body=form.body,
            on_sent=_UploadReport(form.body.size, report),
        )
        report("uploading", 0.0)
        async with self._client.open(request) as answer:
            return await read_outcome(answer, self._expected, self._api_key)


def submit_headers(
    content_type: str, forwarded: Mapping[str, str], api_key: ApiKey | None
) -> list[tuple[str, str]]:
    """The headers of a submit: its type, what is accepted, the client's trace headers, the gateway's key."""
    headers = [("Content-Type", content_type), ("Accept", ACCEPT)]
    headers += [(name, value) for name, value in forwarded.items() if name.lower() in TRACE_HEADERS]
    if api_key is not None:
        headers.append(api_key.as_header())
    return headers


def submit_url(endpoint: str, submit_path: str, query: Sequence[tuple[str, str]]) -> str:
    """The submit path below the endpoint's own, with the query added to one that it may have."""
    url = endpoint.rstrip("/") + submit_path
    if not query:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"


class _UploadReport:
    """Turns bytes sent into stages of a report."""

    def __init__(self, size: int, report: Report) -> None:
        self._size = size
        self._report = report

    def __call__(self, sent: int) -> None:
        stage = "uploading" if sent < self._size else "waiting"
        self._report(stage, UPLOAD_SHARE * sent / self._size)
