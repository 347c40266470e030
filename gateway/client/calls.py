"""Each operation as a request, and how its answer is read. No I/O; both clients send these."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypedDict, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx2
import msgspec
from msgspec import Struct, structs

from gateway.client.documents import Body, Document, files_body, form_body, json_body, raw_body, type_of
from gateway.client.errors import not_understood
from gateway.client.model import Job, Page, Result

LONGEST_WAIT_S: Final = 60.0
"""One long poll; connections that say nothing for longer are cut by what stands in between."""
EARLY_S: Final = 1.0
"""A long poll that ended so much before its time, without the job being done, was cut short (a drain)."""
WAIT_MARGIN_S: Final = 15.0
EVENTS_SILENCE_S: Final = 45.0
"""A stream that says nothing for longer is broken: three of its comments are missing."""

Steering = Literal["cancel", "pause", "interrupt", "resume"]
"""What changes a job and may be asked for twice; a second resume is refused, and was done."""

_JSON: Final = {"Content-Type": "application/json"}
"""Of every write, because the admin bind demands it."""
_EMPTY: Final = json_body(b"")

AnswerT = TypeVar("AnswerT")


class Options(TypedDict, total=False):
    """Options of a submit; what is left out is for the gateway to decide."""

    model: str
    operation: str
    params: Mapping[str, Any]
    """Passed to the upstream."""
    priority: int | Literal["interactive", "batch"]
    max_attempts: int
    run_at: datetime | str
    """Not before then; with a zone."""
    after: Iterable[str]
    """Ids of jobs that must be completed first."""
    result_ttl_s: float
    callback_url: str
    metadata: Mapping[str, Any]


class GroupTerms(Struct, frozen=True):
    """What makes a group of several documents."""

    max_parallel: int
    policy: Literal["collect", "fail_fast"] | None = None

    def members(self) -> dict[str, object]:
        """Those that are given, by name."""
        return {name: value for name, value in structs.asdict(self).items() if value is not None}


class Call(Struct, frozen=True, kw_only=True):
    """One request."""

    method: str
    path: str
    """Below the client's URL."""
    harmless: bool = True
    """Whether it may be carried out twice."""
    forgets: bool = False
    """Whether a 404 to a repetition means that the first try did it."""
    params: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = {}
    body: Body | None = None
    silence_s: float | None = None
    """Longest silence of the gateway while it answers; None: the client's."""


def submit(
    document: Document, options: Options, *, key: str | None, content_type: str | None, form: bool | None
) -> Call:
    """`POST /jobs` of a document.

    Args:
        document: what is to be worked on.
        options: beside it.
        key: idempotency key; None: a new one.
        content_type: of the document; None: by the name of its file.
        form: whether it goes as a file of a form; None: only when its type would mean something else as a body's.
    """
    fields = tuple(_fields(options))
    if form is None:
        form = (content_type or type_of(document)).lower().startswith(("application/json", "multipart/"))
    body = form_body(document, content_type, fields) if form else raw_body(document, content_type)
    return _submit(body, key, () if form else fields)


def submit_input(value: object, options: Options, *, key: str | None) -> Call:
    """`POST /jobs` of JSON that the upstream receives."""
    return _submit(json_body(msgspec.json.encode({"input": value, **_members(options)})), key, ())


def submit_group(
    children: Iterable[Document | Mapping[str, Any]], terms: GroupTerms, options: Options, *, key: str | None
) -> Call:
    """`POST /jobs` of a group: as a form when its children are documents, as JSON when they are mappings.

    Raises:
        TypeError: they are a mixture.
    """
    listed = list(children)
    if all(isinstance(child, Mapping) for child in listed):
        members = _members(options)
        fanout = {**terms.members(), "children": listed}
        return _submit(json_body(msgspec.json.encode({**members, "fanout": fanout})), key, ())
    documents = [child for child in listed if not isinstance(child, Mapping)]
    if len(documents) < len(listed):
        raise TypeError("expected documents, or mappings, not both: they go in different bodies")
    terms_fields = ((name, str(value)) for name, value in terms.members().items())
    return _submit(files_body(documents, [*terms_fields, *_fields(options)]), key, ())


def _submit(body: Body, key: str | None, params: tuple[tuple[str, str], ...]) -> Call:
    headers = {"Idempotency-Key": f'"{key or uuid4().hex}"', "Content-Type": body.content_type}
    if body.size is not None:
        headers["Content-Length"] = str(body.size)
    return Call(method="POST", path="jobs", params=params, headers=headers, body=body)


def _members(options: Options) -> dict[str, object]:
    members: dict[str, object] = {name: value for name, value in options.items() if value is not None}
    if "after" in members:
        members["after"] = list(options["after"])
    if isinstance(run_at := members.get("run_at"), datetime):
        members["run_at"] = run_at.isoformat()
    return members


def _fields(options: Options) -> Iterable[tuple[str, str]]:
    """Options as text. Those that are JSON stand as JSON."""
    for name, value in _members(options).items():
        yield name, value if isinstance(value, str) else msgspec.json.encode(value).decode()


def get(job_id: str) -> Call:
    """`GET /jobs/{id}`."""
    return Call(method="GET", path=_job(job_id))


def wait(job_id: str, left_s: float) -> Call:
    """`GET /jobs/{id}/wait`, for as long as is left but no longer than one poll."""
    timeout_s = min(max(left_s, 0.001), LONGEST_WAIT_S)
    return Call(
        method="GET",
        path=f"{_job(job_id)}/wait",
        params=(("timeout", str(max(1, round(timeout_s * 1000)))),),
        silence_s=timeout_s + WAIT_MARGIN_S,
    )


def events(job_id: str | None, cursor: str | None) -> Call:
    """`GET /jobs/{id}/events`, or `GET /events`."""
    return Call(
        method="GET",
        path="events" if job_id is None else f"{_job(job_id)}/events",
        headers={"Accept": "text/event-stream", **({} if cursor is None else {"Last-Event-ID": cursor})},
        silence_s=EVENTS_SILENCE_S,
    )


def result(job_id: str) -> Call:
    """`GET /jobs/{id}/result`."""
    return Call(method="GET", path=f"{_job(job_id)}/result")


def listing(filters: Mapping[str, object]) -> Call:
    """`GET /jobs`. A filter that is a list stands once for each of its items; None is left out."""
    params = tuple(
        (name, str(item))
        for name, value in filters.items()
        if value is not None
        for item in (value if isinstance(value, list | tuple | set | frozenset) else [value])
    )
    return Call(method="GET", path="jobs", params=params)


def steer(job_id: str, action: Steering) -> Call:
    """`POST /jobs/{id}/cancel` and its like."""
    return write("POST", f"{_job(job_id)}/{action}", harmless=action != "resume")


def retry(job_id: str) -> Call:
    """`POST /jobs/{id}/retry`: makes a new job, so it is never sent twice without need."""
    return write("POST", f"{_job(job_id)}/retry", harmless=False)


def delete(job_id: str) -> Call:
    """`DELETE /jobs/{id}`."""
    return Call(method="DELETE", path=_job(job_id), headers=_JSON, forgets=True)


def write(method: str, path: str, *, harmless: bool = True, content: object = None) -> Call:
    """A write that takes JSON, or nothing."""
    body = _EMPTY if content is None else json_body(msgspec.json.encode(content))
    headers = {**_JSON, "Content-Length": str(body.size)}
    return Call(method=method, path=path, harmless=harmless, headers=headers, body=body)


def _job(job_id: str) -> str:
    return f"jobs/{quote(job_id, safe='')}"


def read_job(response: httpx2.Response) -> Job:
    """The job object of an answer."""
    return read(response, Job)


def read_page(response: httpx2.Response) -> Page:
    """A page of jobs."""
    return read(response, Page)


def read_result(response: httpx2.Response) -> Result:
    """A result's bytes."""
    return Result(response.content, response.headers.get("content-type", ""))


def read(response: httpx2.Response, kind: type[AnswerT]) -> AnswerT:
    """An answer as its type.

    Raises:
        GatewayError: it is none.
    """
    try:
        return msgspec.json.decode(response.content, type=kind)
    except ValueError as error:
        raise not_understood(response.status_code, error) from error


def rest_s(waited: Call, took_s: float, left_s: float) -> float:
    """Seconds to rest after a long poll that left the job unfinished: none, unless it was cut short."""
    asked_s = int(waited.params[0][1]) / 1000
    return min(EARLY_S, left_s) if took_s < asked_s - EARLY_S else 0.0
