"""The content type that a client names, for its body or for a part of it, checked.

It is recorded, and goes on to an upstream as a header. So it must be one: a type and a subtype, and printable ASCII
behind them (RFC 9110, section 8.3.1). What the parameters say is the concern of those who read them.
"""

import re
from typing import Final

from gateway.problems import invalid, shown

OCTETS: Final = "application/octet-stream"
"""What a body is whose client names no type."""
MAX_TYPE_CHARS: Final = 1024

_NAME: Final = r"[0-9A-Za-z!#$%&'*+.^_`|~-]+"
_MEDIA_TYPE: Final = re.compile(rf"{_NAME}/{_NAME}[\t ]*(;[\t\x20-\x7e]*)?")


def checked_type(named: str | None, where: str) -> str:
    """The content type as the client named it, without blanks around it; OCTETS when it named none.

    Args:
        named: the header's value.
        where: its place, as in `FieldError.pointer`.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    content_type = (named or "").strip()
    if len(content_type) > MAX_TYPE_CHARS or (content_type and not _MEDIA_TYPE.fullmatch(content_type)):
        expected = (
            f"a Content-Type such as application/pdf, printable ASCII of at most {MAX_TYPE_CHARS} characters"
        )
        raise invalid(where, f"expected {expected}; got {shown(ascii(content_type))}")
    return content_type or OCTETS
