"""One connection to the server: commands go out packed together, replies come in one by one.

redis-py does the talking. Here its errors become two: `WireBroken` (the connection is of no use any more; what was
sent and not answered may have happened) and `ErrorReply` (the server answered that it would not).
"""

import re
import select
import socket
import ssl
from collections.abc import Iterable, Sequence
from typing import Any, Final

from redis.connection import AbstractConnection
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

Argument = bytes | str | int
Command = tuple[Argument, ...]

_CODES: Final = "OOM|READONLY|LOADING|MISCONF|NOREPLICAS|BUSY|MASTERDOWN|NOSCRIPT|NOAUTH|NOPERM|UNBLOCKED|CLUSTERDOWN|MOVED"
_WRAPPED: Final = re.compile(rf"-({_CODES})\b")
"""As servers before 7.0 hand on the error of a command inside a script: in the middle of the text, after a dash."""


class WireBroken(Exception):
    """The connection cannot be used any more, or could not be made."""


class ErrorReply(Exception):
    """The server answered with an error."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        """The word that Redis begins it with, also when it comes from inside a script."""

    @classmethod
    def of(cls, error: RedisError) -> "ErrorReply":
        """As redis-py raised it."""
        text = str(error)
        wrapped = _WRAPPED.search(text)
        first = error.status_code or text.partition(" ")[0]
        return cls(wrapped[1] if wrapped else first, text)


class Wire:
    """An open connection. Used by one thread; only `shut` may be called from another."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection: Any = connection
        self._socket = _socket_of(connection)
        self._looking = select.poll()
        self._looking.register(self._socket, select.POLLIN)

    def __repr__(self) -> str:
        return "<Wire>"

    def send(self, commands: Iterable[Command]) -> None:
        """Put commands on their way, in one go.

        Raises:
            WireBroken: some may have arrived, all or none.
        """
        packed = b"".join(self._connection.pack_commands(commands))
        try:
            self._connection.send_packed_command([packed], check_health=False)
        except (RedisError, OSError) as error:
            raise self._broken(error) from None

    def read(self) -> object:
        """The next reply; an error reply is returned as an `ErrorReply`.

        Raises:
            WireBroken: none came in time, or the connection broke.
        """
        try:
            return self._connection.read_response(disconnect_on_error=False)
        except (ResponseError, AuthenticationError, BusyLoadingError) as error:
            return ErrorReply.of(error)
        except (RedisError, OSError) as error:
            raise self._broken(error) from None

    def ask(self, commands: Sequence[Command]) -> list[object]:
        """Send these and read their replies.

        Raises:
            WireBroken.
        """
        self.send(commands)
        return [self.read() for _ in commands]

    def quiet(self) -> bool:
        """Whether nothing has come in, not even the end: a connection at rest that can be used."""
        if not self._looking.poll(0):
            return True
        return isinstance(self._socket, ssl.SSLSocket) and _no_data(self._socket)

    def wait_at_most(self, seconds: float) -> None:
        """How long each later step may take before the connection counts as broken."""
        self._socket.settimeout(seconds)

    def shut(self) -> None:
        """End the connection under the thread that uses it: its next or present step raises `WireBroken`."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is closed already

    def close(self) -> None:
        """Close the connection."""
        self._connection.disconnect()

    def _broken(self, error: Exception) -> WireBroken:
        self.close()
        return WireBroken(str(error) or type(error).__name__)


def _no_data(tls: ssl.SSLSocket) -> bool:
    """Whether what came in is talk of TLS itself."""
    timeout = tls.gettimeout()
    tls.settimeout(0)
    try:
        tls.recv(1)
    except ssl.SSLWantReadError:
        return True
    except OSError:
        return False
    finally:
        tls.settimeout(timeout)
    return False


def _socket_of(connection: AbstractConnection) -> socket.socket:
    """The socket of an open connection; redis-py has no public name for it."""
    foreign: Any = connection
    found: socket.socket = foreign._sock  # noqa: SLF001  there is no other way to end a read from outside
    return found
