"""The bounds of an HTTP server, towards clients that are slow, silent or gone."""

from typing import Final

from msgspec import Struct

PIECE_BYTES: Final = 256 * 1024
"""The most of an answer that is handed to a socket at a time."""


class ServerLimits(Struct, frozen=True, kw_only=True):
    """Bounds of one listener; seconds and bytes."""

    read_timeout_s: float = 30.0
    """A request without a byte for so long is refused with 408."""
    keep_alive_s: float = 75.0
    """An idle connection is closed; also the time a request's head may take as a whole."""
    send_timeout_s: float = 30.0
    """In this time a client takes one piece of an answer, or the connection is closed."""
    graceful_s: float = 5.0
    """After the listener has closed, what is still being answered has so long."""
    user_timeout_s: float = 30.0
    """Bytes that the peer's kernel does not acknowledge for so long end the connection (TCP_USER_TIMEOUT)."""
    backlog: int = 1024
    """Connections the kernel holds until they are accepted."""
