"""A stub that plays Azure Document Intelligence: its routes, its answers, its faults. The official client accepts it.

    async with open_azure_stub(polls=[running(), running(), succeeded()]) as azure:
        ...  # azure.url is the endpoint

It knows the operations that it accepted and no others: each has a UUID, its polls play from the first script on, and
after a DELETE it is unknown. Each of `submits`, `polls` and `deletes` is a list of scripts, played in order, the last
one for ever; any script of `adapters.testing.scripts` fits in, so everything that can go wrong on a wire can go wrong
here. A request without the key gets a 401 as the service words it.

Wire facts: 202 without a body and without Retry-After; polls of a running operation carry Retry-After, the last one
does not; a failed operation is an HTTP 200.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

import msgspec
from msgspec import Struct

from adapters.testing import scripts
from adapters.testing.stub import Exchange, ReceivedRequest, Script, open_stub_upstream

_T = TypeVar("_T")

KEY_HEADER: Final = "Ocp-Apim-Subscription-Key"
KEY: Final = "0123456789abcdef-azure-stub"

RESULT: Final = (
    b'{"apiVersion":"2024-11-30","modelId":"prebuilt-layout","stringIndexType":"textElements",'
    b'"content":"INVOICE No. 2024-0117","pages":[{"pageNumber":1,"spans":[{"offset":0,"length":21}]}, '
    b'{ "pageNumber" : 2, "spans": [] }], "documents":[]}'
)
"""Two pages, with blanks between its members that must survive."""

_CREATED: Final = '"createdDateTime":"2024-12-01T10:00:00Z","lastUpdatedDateTime":"2024-12-01T10:00:01Z"'

_SUBMIT: Final = re.compile(r"(?P<prefix>.*/documentModels/(?P<model>[^/:]+)):analyze")
_RESULT: Final = re.compile(r".*/documentModels/[^/]+/analyzeResults/(?P<id>[^/]+)")


def operation(status: str, members: str = "", *, retry_after: str | None = "1") -> Script:
    """An operation with a status, further members as JSON text, and a Retry-After."""
    body = f'{{"status":"{status}",{_CREATED}{"," if members else ""}{members}}}'
    return scripts.answer(body.encode(), headers={} if retry_after is None else {"Retry-After": retry_after})


def running(percent: float | None = None, *, retry_after: str | None = None) -> Script:
    """An operation at work. Without a Retry-After, so that tests decide the pace."""
    members = "" if percent is None else f'"percentCompleted":{percent}'
    return operation("running", members, retry_after=retry_after)


def succeeded(result: bytes = RESULT) -> Script:
    """An operation with its result."""
    return operation("succeeded", f'"analyzeResult":{result.decode()}', retry_after=None)


def failed(*codes: str, status: str = "failed") -> Script:
    """An operation that failed, with codes from the outermost to the innermost."""
    return operation(status, error_members(*codes), retry_after=None)


def refusal(status: int, *codes: str, headers: Mapping[str, str] | None = None) -> Script:
    """An HTTP error with the service's error object."""
    return scripts.answer(f"{{{error_members(*codes)}}}".encode(), status=status, headers=headers)


def error_members(*codes: str) -> str:
    """The member `error` as JSON text: each code inside the one before, and its message."""
    error: dict[str, Any] = {}
    for code in reversed(codes):
        error = {"code": code, "message": f"Message of {code}.", **({"innererror": error} if error else {})}
    return f'"error":{msgspec.json.encode(error).decode()}'


class Accepted(Struct, frozen=True):
    """A submit that is accepted, and makes an operation."""

    location: str | None = "{url}{path}"
    """The Operation-Location; `{url}` is the stub, `{path}` the operation's path and query; None sends none."""
    headers: Mapping[str, str] = {}
    """Further ones, for example Retry-After."""


DELETED: Final = scripts.sends(scripts.head(204, {}))


class AzureStub:
    """A running stub. Made by `open_azure_stub`.

    Args:
        submits: what to play for submits.
        polls: what to play for the polls of each operation.
        deletes: what to play for deletes.
    """

    def __init__(
        self, submits: Sequence[Accepted | Script], polls: Sequence[Script], deletes: Sequence[Script]
    ) -> None:
        self.url = ""
        """The endpoint."""
        self.submitted: list[ReceivedRequest] = []
        self.polled: list[ReceivedRequest] = []
        self.deleted: list[ReceivedRequest] = []
        self._submits = _Played(submits)
        self._polls = polls
        self._deletes = _Played(deletes)
        self._operations: dict[str, _Played[Script]] = {}

    @property
    def requests(self) -> list[ReceivedRequest]:
        """All of them, by kind."""
        return [*self.submitted, *self.polled, *self.deleted]

    @property
    def hosts_with_key(self) -> set[str]:
        """The Host of every request that carried the key."""
        with_key = [request for request in self.requests if _has_key(request)]
        return {request.header("host") or "" for request in with_key}

    def accept(self) -> str:
        """Make an operation as a submit would; its id. For what an earlier attempt left behind."""
        operation_id = str(uuid4())
        self._operations[operation_id] = _Played(self._polls)
        return operation_id

    async def play(self, exchange: Exchange) -> None:
        """The script of the stub's socket: find what the request asks for, and play the next answer to it."""
        target = urlsplit(exchange.request.target)
        path = unquote(target.path)
        if submit := _SUBMIT.fullmatch(path):
            self.submitted.append(exchange.request)
            await self._submit(exchange, submit["prefix"], target.query)
        elif result := _RESULT.fullmatch(path):
            await self._result(exchange, result["id"])
        else:
            await refusal(404, "NotFound")(exchange)

    async def _submit(self, exchange: Exchange, prefix: str, query: str) -> None:
        version = parse_qs(query).get("api-version")
        if not _has_key(exchange.request):
            await refusal(401, "401")(exchange)
        elif version is None or len(version) != 1:
            await refusal(400, "InvalidArgument", "NotSupportedApiVersion")(exchange)
        elif isinstance(script := self._submits.next(), Accepted):
            await exchange.read_body()
            await exchange.send(self._accepted(script, exchange, f"{prefix}/analyzeResults", version[0]))
        else:
            await script(exchange)

    def _accepted(self, play: Accepted, exchange: Exchange, results: str, version: str) -> bytes:
        operation_id = self.accept()
        headers = {"apim-request-id": operation_id} | dict(play.headers)
        if play.location is not None:
            path = f"{results}/{operation_id}?api-version={version}"
            headers["Operation-Location"] = play.location.format(url=exchange.stub.url, path=path)
        return scripts.message(b"", status=202, content_type=None, headers=headers)

    async def _result(self, exchange: Exchange, operation_id: str) -> None:
        request = exchange.request
        (self.deleted if request.method == "DELETE" else self.polled).append(request)
        operation = self._operations.get(operation_id)
        if not _has_key(request):
            await refusal(401, "401")(exchange)
        elif operation is None:
            await refusal(404, "NotFound", "OperationNotFound")(exchange)
        elif request.method == "DELETE":
            del self._operations[operation_id]
            await self._deletes.next()(exchange)
        else:
            await operation.next()(exchange)


class _Played(Generic[_T]):
    """Scripts in their order, the last one for ever."""

    def __init__(self, plays: Sequence[_T]) -> None:
        self._plays = list(plays)

    def next(self) -> _T:
        return self._plays.pop(0) if len(self._plays) > 1 else self._plays[0]


def _has_key(request: ReceivedRequest) -> bool:
    return request.header(KEY_HEADER.lower()) == KEY


@asynccontextmanager
async def open_azure_stub(
    *,
    submits: Sequence[Accepted | Script] = (Accepted(),),
    polls: Sequence[Script] = (succeeded(),),
    deletes: Sequence[Script] = (DELETED,),
) -> AsyncIterator[AzureStub]:
    """A stub on a free loopback port."""
    azure = AzureStub(submits, polls, deletes)
    async with open_stub_upstream(azure.play) as upstream:
        azure.url = upstream.url
        yield azure
