"""The members of a JSON object inside a body, each as the bytes that stood there."""

import msgspec
from msgspec import Raw

from gateway.http.submit.nesting import Nesting, look_through
from gateway.problems import ApiError, invalid, shown


async def members_of(raw: Raw, where: str, most: int) -> dict[str, Raw]:
    """The members of an object.

    Args:
        raw: the object; the nesting of the whole body has been checked.
        where: its place, as in `FieldError.pointer`.
        most: bound on their number.

    Raises:
        ApiError: INVALID_REQUEST: it is no object, or has too many members, or names one twice.
    """
    text = memoryview(raw)
    nesting = Nesting(where, max_members=most)
    try:
        members = msgspec.json.decode(text, type=dict[str, Raw])
        await look_through(nesting, text)
    except msgspec.DecodeError as error:
        raise invalid(where, f"expected an object; {shown(error)}") from error
    except ApiError as error:
        raise invalid(where, error.detail) from error
    if len(members) != nesting.members:
        raise invalid(where, "it names a member twice")
    return members
