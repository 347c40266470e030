"""What a job of an llm upstream must look like: a JSON `input`, as a request of the OpenAI routes, and no stream."""

import msgspec
from msgspec import Raw, Struct

from gateway.config.upstreams import LlmUpstream
from gateway.problems import invalid
from gateway.registry import Route


class _Request(Struct):
    """What the gateway reads of it."""

    stream: Raw = Raw(b"null")


def check_takes_type(route: Route, media_type: str, where: str = "header:content-type") -> None:
    """Refuse a document that is no JSON, before it is read.

    Args:
        route: where the job goes.
        media_type: of the body.
        where: its place, as in `FieldError.pointer`.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    if isinstance(route.upstream, LlmUpstream) and media_type != "application/json":
        expected = "application/json with the member input"
        raise invalid(where, f"model {route.model!r} takes requests as JSON: expected {expected}")


def check_input(route: Route, document: Raw, where: str = "/input") -> None:
    """Refuse an `input` that its upstream could not take as a job.

    Args:
        route: where the job goes.
        document: the input as it stood in the body.
        where: its place, as in `FieldError.pointer`.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    if not isinstance(route.upstream, LlmUpstream):
        return
    try:
        asked = msgspec.json.decode(document, type=_Request)
    except msgspec.ValidationError as error:
        raise invalid(where, "expected a JSON object, as the OpenAI routes take it") from error
    if asked.stream == Raw(b"true"):
        raise invalid(
            f"{where}/stream", "expected false: a job has one result; streams come from the routes below /v1"
        )
