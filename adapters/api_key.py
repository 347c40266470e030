"""An upstream's key: one header, and a value that never shows."""

from typing import Final, final

MASK: Final = b"[key]"


@final
class ApiKey:
    """The key that the gateway presents to an upstream. No struct: nothing can list or encode its fields.

    Args:
        header: name of the header that carries it; "Bearer " is put before the key in `Authorization` only.
        value: the key itself: visible ASCII, not empty.

    Raises:
        ValueError: the value cannot stand in a header; the message does not hold it.
    """

    __slots__ = ("_value", "header")

    def __init__(self, header: str, value: str) -> None:
        if not value or not all("!" <= letter <= "~" for letter in value):
            raise ValueError(f"the key for {header} is not usable: expected visible ASCII without spaces")
        self.header = header
        self._value = value

    def __repr__(self) -> str:
        return f"ApiKey({self.header})"

    def as_header(self) -> tuple[str, str]:
        """Name and value of the header to send."""
        is_authorization = self.header.lower() == "authorization"
        return self.header, f"Bearer {self._value}" if is_authorization else self._value

    def redact(self, data: bytes) -> bytes:
        """`data` without the key: some servers quote it in their error messages."""
        return data.replace(self._value.encode(), MASK)
