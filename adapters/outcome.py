"""From an answer to an outcome: what counts as delivered, and whose fault it is when nothing was.

Rules
- Any status but 2xx is a failure by `kind_of_status`, with the first 2 KiB of the body.
- A 2xx must be what its type says: HTML never is; under a JSON type or none, and wherever JSON is demanded, the body
  must be JSON: UTF-8 after a byte order mark, no NaN or Infinity, not nested beyond what can be read.
- A 2xx may still carry an error inside (`ErrorEnvelope`).
- What is delivered is delivered verbatim, undone of its Content-Encoding only.
- An upstream may quote the gateway's key in its errors: the key is taken out of whatever is kept of them.
"""

import json
import re
from typing import Final, Never

import msgspec
from msgspec import Raw, Struct

from adapters.api_key import ApiKey
from adapters.base import EXCERPT_BYTES, AdapterError, Kind, Outcome
from adapters.http_answer import Answer
from adapters.media_type import is_json_type, media_type_of

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
"""The bound on an answer where the configuration names no other."""
EXCERPT_MARGIN_BYTES: Final = 4096
"""Read beyond the excerpt, so that a key that crosses its end is seen whole and taken out."""


REQUEST_ID: Final = re.compile(r"[!-~]{1,256}")
"""A usable name of a call."""
_Scalar = str | int | float | bool | None


class ErrorEnvelope(Struct, frozen=True, kw_only=True):
    """Where a 2xx JSON answer says that it is an error.

    PaddleX: `errorCode`, 0, `errorMsg`. PaddleHub: `status`, "000", `msg`.
    """

    code_path: str
    """Names of members, joined by dots. An answer without this member, or with null there, carries no error."""
    ok: int | str | bool = 0
    """The code that means success; 0, "0" and false are three different codes."""
    message_path: str | None = None
    """Where its words stand."""


class Expectation(Struct, frozen=True, kw_only=True):
    """What an answer must be."""

    max_bytes: int
    """More is refused, on the wire and decoded."""
    must_be_json: bool = False
    """JSON whatever its type says."""
    envelope: ErrorEnvelope | None = None
    """Implies `must_be_json`."""


_KINDS_BY_STATUS: Final = {
    401: (Kind.AUTH, "UPSTREAM_AUTH"),
    403: (Kind.AUTH, "UPSTREAM_AUTH"),
    429: (Kind.RATE_LIMIT, "UPSTREAM_RATE_LIMITED"),
}
_KINDS_BY_HUNDRED: Final = {
    3: (Kind.PROVIDER_4XX, "UPSTREAM_REDIRECT"),
    4: (Kind.PROVIDER_4XX, "UPSTREAM_4XX"),
    5: (Kind.PROVIDER_5XX, "UPSTREAM_5XX"),
}


def kind_of_status(status: int, *, asks_to_wait: bool) -> tuple[Kind, str]:
    """Kind and error code of a status that is no 2xx.

    Args:
        status: HTTP status, also one that an envelope carries.
        asks_to_wait: the answer has a readable Retry-After; it makes a 503 a rate limit.
    """
    if status == 503 and asks_to_wait:
        return _KINDS_BY_STATUS[429]
    by_hundred = _KINDS_BY_HUNDRED.get(status // 100, (Kind.UNKNOWN, "UNKNOWN"))
    return _KINDS_BY_STATUS.get(status, by_hundred)


async def read_outcome(answer: Answer, expected: Expectation, api_key: ApiKey | None) -> Outcome:
    """Read an answer to its end and judge it.

    Raises:
        AdapterError: it is not what was expected.
    """
    if not 200 <= answer.status < 300:
        kind, code = kind_of_status(answer.status, asks_to_wait=answer.retry_after_s is not None)
        excerpt = await answer.excerpt(EXCERPT_BYTES + EXCERPT_MARGIN_BYTES)
        raise _failed(
            answer, kind, code, f"{answer.origin} answered {answer.status}", _excerpt(excerpt, api_key)
        )
    body = await answer.read(expected.max_bytes)
    must_be_json = expected.must_be_json or expected.envelope is not None
    content_type = _type_of(answer)
    fault = _type_fault(content_type, body, must_be_json=must_be_json)
    if fault is not None:
        message = f"{answer.origin} answered {answer.status}, but {fault}"
        raise _failed(answer, Kind.PARSE, "UPSTREAM_NOT_JSON", message, _excerpt(body, api_key))
    if expected.envelope is not None:
        _check_envelope(answer, body, expected.envelope, api_key)
    return Outcome(
        body=body,
        content_type=content_type or "application/json",
        http_status=answer.status,
        upstream_request_id=_request_id(answer),
    )


def _request_id(answer: Answer) -> str | None:
    """What the upstream calls the call, when it can stand in a record and a log."""
    name = answer.header("x-request-id")
    return name if name is not None and REQUEST_ID.fullmatch(name) else None


def _failed(answer: Answer, kind: Kind, code: str, message: str, excerpt: str) -> AdapterError:
    return AdapterError(
        kind,
        code,
        message,
        retry_after_s=answer.retry_after_s,
        upstream_status=answer.status,
        body_excerpt=excerpt,
    )


def _excerpt(body: bytes, api_key: ApiKey | None) -> str:
    """The first bytes of a body as text, without the key."""
    head = body[: EXCERPT_BYTES + EXCERPT_MARGIN_BYTES]
    return (api_key.redact(head) if api_key else head)[:EXCERPT_BYTES].decode("utf-8", "replace")


def _type_of(answer: Answer) -> str:
    """What the answer says it is; when a proxy has added a type of its own, the one to check: HTML, then JSON."""
    content_type = answer.header("content-type") or ""
    types = [value.strip() for value in content_type.split(",") if "/" in media_type_of(value)]
    if len(types) < 2:
        return content_type
    checked = [*filter(_is_html, types), *filter(is_json_type, types)]
    return checked[0] if checked else content_type


def _is_html(content_type: str) -> bool:
    return media_type_of(content_type) == "text/html"


def _type_fault(content_type: str, body: bytes, *, must_be_json: bool) -> str | None:
    if _is_html(content_type):
        return "with an HTML page"
    if not (must_be_json or not media_type_of(content_type) or is_json_type(content_type)):
        return None
    fault = json_fault(body)
    return None if fault is None else f"its body is not JSON: {fault}"


_HALF_PAIR: Final = re.compile(rb"\\u[dD][89a-fA-F]")
SECOND_OPINION_BYTES: Final = 8 * 2**20
"""A larger body would cost too much memory to be looked at again."""


def json_fault(body: bytes) -> str | None:
    """Why a body is not JSON; None when it is. A byte order mark before it is passed over."""
    text = body.removeprefix(BYTE_ORDER_MARK)
    if not text.strip():
        return "it is empty"
    try:
        # Raw checks the syntax and builds nothing: a body of 64 MiB costs no gigabyte of objects. It leaves strings alone.
        msgspec.json.decode(text, type=Raw)
        if not text.isascii():
            text.decode("utf-8")
    except msgspec.DecodeError as error:
        return _second_opinion(text, str(error))
    except UnicodeDecodeError as error:
        return str(error)
    except RecursionError:
        return "it is nested too deeply"
    return None


def _second_opinion(text: bytes, fault: str) -> str | None:
    """Msgspec takes half a surrogate pair, escaped, for a broken string; RFC 8259 (section 8.2) allows it.

    An engine that cuts its text in the middle of such a pair has delivered all the same.
    """
    if not _HALF_PAIR.search(text) or len(text) > SECOND_OPINION_BYTES:
        return fault
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return fault
    return None


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _check_envelope(answer: Answer, body: bytes, envelope: ErrorEnvelope, api_key: ApiKey | None) -> None:
    document = Raw(body.removeprefix(BYTE_ORDER_MARK))
    code = _member(document, envelope.code_path)
    if code is None or (type(code) is type(envelope.ok) and code == envelope.ok):
        return
    status = _as_status(code)
    asks_to_wait = answer.retry_after_s is not None
    kind = Kind.PROVIDER_4XX if status is None else kind_of_status(status, asks_to_wait=asks_to_wait)[0]
    said = _member(document, envelope.message_path) if envelope.message_path else None
    words = f"{envelope.code_path} is {code!r}" + (f": {said}" if said is not None else "")
    words = _excerpt(words.encode("utf-8", "replace"), api_key)
    message = f"{answer.origin} answered {answer.status}, but reports an error: {words}"
    raise _failed(answer, kind, "UPSTREAM_ERROR", message, _excerpt(body, api_key))


def _member(document: Raw, path: str) -> object:
    """The value at a dotted path of a checked JSON document, text unless it is a scalar; None when there is none."""
    for name in path.split("."):
        try:
            members = msgspec.json.decode(document, type=dict[str, Raw])
        except msgspec.ValidationError:  # not an object
            return None
        if name not in members:
            return None
        document = members[name]
    try:
        return msgspec.json.decode(document, type=_Scalar)
    except msgspec.ValidationError:  # a number that no machine type holds, an array or an object
        return bytes(document).decode()


def _as_status(code: object) -> int | None:
    """A code of 400..599, as a number or as digits, read as an HTTP status."""
    if isinstance(code, str) and code.isascii() and code.isdecimal() and len(code) == 3:
        code = int(code)
    return code if isinstance(code, int) and 400 <= code <= 599 else None
