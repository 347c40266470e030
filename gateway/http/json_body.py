"""A JSON body that is read whole, as the type that a handler asks for."""

import re
from typing import Final, TypeVar

import msgspec

from gateway.http.body import read_all
from gateway.http.json_fault import json_fault
from gateway.http.message import Request
from gateway.http.submit.nesting import check_nesting
from gateway.problems import ApiError, invalid, shown

MAX_BYTES: Final = 256 * 1024
"""Of a body that asks for something; none holds a document."""

T = TypeVar("T")
_PLACE: Final = re.compile(r"(?P<what>.*) - at `(?:key in )?\$(?P<path>[^`]*)`", re.DOTALL)
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]")


async def read_json(request: Request, kind: type[T]) -> T:
    """Read and decode the body.

    Args:
        request: whose body it is.
        kind: a struct that forbids unknown fields.

    Raises:
        ApiError: INVALID_REQUEST with a pointer to what is wrong; PAYLOAD_TOO_LARGE, REQUEST_TIMEOUT.
        ClientGone: the client broke off.
    """
    body = await read_all(request, MAX_BYTES)
    check_nesting(body, "the body")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        found = _PLACE.fullmatch(str(error))
        if found is None:
            raise ApiError("INVALID_REQUEST", f"the body: {shown(error)}") from error
        raise invalid(_pointer(found["path"]), shown(found["what"])) from error
    except msgspec.DecodeError as error:
        raise ApiError("INVALID_REQUEST", f"the body is no JSON: {json_fault(body, error)}") from error


def _pointer(path: str) -> str:
    """Msgspec's `.filter.ids[3]` as a JSON pointer."""
    return "".join(f"/{name or index}" for name, index in _STEP.findall(path))
