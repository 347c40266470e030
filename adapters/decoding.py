"""Content-Encoding, undone piece by piece.

A small compressed body can stand for a huge one, so no step yields more than a bounded piece: whoever collects the
pieces counts them and stops at its limit. One of a million members that hold nothing costs work without a piece to
count, so empty members are counted here. Decoders keep state: one per answer.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

import zstandard

from adapters.base import AdapterError, Kind

PIECE_BYTES: Final = 1024 * 1024
"""At most so much comes out of zlib in one step."""

GZIP_STEP_BYTES: Final = 8 * 1024
"""At most so much goes into zlib in one step. What follows the end of a member is copied, once for each member."""

EMPTY_MEMBERS: Final = 1000
"""Gzip members or zstd frames of an answer that may hold nothing. Writers that flush make a few."""

ZSTD_STEP_BYTES: Final = 256
"""At most so much goes into zstandard in one step. Four bytes can be a block of 128 KiB: 8 MiB a step at worst."""

ZSTD_WINDOW_BYTES: Final = 8 * 1024 * 1024
"""The largest window that a zstd content coding may ask for (RFC 9659)."""


class Decoder(Protocol):
    """Turns encoded chunks into decoded pieces."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The pieces that follow from one more chunk; exhaust them before the next chunk.

        Raises:
            AdapterError: parse, the body is not what its Content-Encoding says.
        """
        ...

    def finish(self) -> None:
        """The body has ended.

        Raises:
            AdapterError: parse, the encoded data ends too early.
        """
        ...


def decoder_for(content_encoding: str | None) -> Decoder:
    """The decoder for a Content-Encoding header (None: the answer has none).

    Raises:
        AdapterError: parse, an encoding nobody asked for and nobody here knows.
    """
    name = (content_encoding or "identity").strip().lower()
    make = _DECODERS.get(name)
    if make is None:
        known = ", ".join(sorted(_DECODERS))
        raise _not_decodable(f"its Content-Encoding is {name[:64]!r}, expected one of {known}")
    return make()


def _not_decodable(why: str) -> AdapterError:
    return AdapterError(Kind.PARSE, "UPSTREAM_PARSE", f"the answer cannot be decoded: {why}")


class _Identity:
    def feed(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk

    def finish(self) -> None:
        pass


class _EmptyMembers:
    """Counts members that ended without a byte of content."""

    def __init__(self) -> None:
        self._seen = 0
        self._has_content = False

    def note(self, piece: bytes, *, at_end: bool) -> None:
        """A piece of the present member, perhaps its last."""
        self._has_content |= bool(piece)
        if not at_end:
            return
        self._seen += not self._has_content
        self._has_content = False
        if self._seen > EMPTY_MEMBERS:
            raise _not_decodable(f"more than {EMPTY_MEMBERS} of its members are empty")


class _Gzip:
    """One or more gzip members (RFC 1952)."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._is_open = False
        self._empty = _EmptyMembers()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        for start in range(0, len(chunk), GZIP_STEP_BYTES):
            step = chunk[start : start + GZIP_STEP_BYTES]
            while step:
                if self._member.eof:
                    self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
                self._is_open = True
                piece = _inflate(self._member, step)
                step = self._member.unconsumed_tail or self._member.unused_data
                self._is_open = not self._member.eof
                self._empty.note(piece, at_end=self._member.eof)
                yield piece

    def finish(self) -> None:
        if self._is_open:
            raise _not_decodable("the gzip data ends too early")


class _Deflate:
    """zlib data (RFC 1950) as the standard says, or raw deflate (RFC 1951) as some servers send."""

    def __init__(self) -> None:
        self._stream: zlib._Decompress | None = None
        self._head = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        if self._stream is None:
            self._head += chunk
            if len(self._head) < 2:
                return
            self._stream = zlib.decompressobj(zlib.MAX_WBITS if _is_zlib(self._head) else -zlib.MAX_WBITS)
            chunk = self._head
        piece = b""
        # A full piece may leave output behind though all input is taken: raw deflate has no trailer to wait for.
        while (chunk or len(piece) == PIECE_BYTES) and not self._stream.eof:
            piece = _inflate(self._stream, chunk)
            chunk = self._stream.unconsumed_tail
            yield piece

    def finish(self) -> None:
        if self._head and (self._stream is None or not self._stream.eof):
            raise _not_decodable("the deflate data ends too early")


def _is_zlib(head: bytes) -> bool:
    """Whether two bytes are a zlib header: method 8, and a multiple of 31 together."""
    return head[0] & 0x0F == 8 and int.from_bytes(head[:2]) % 31 == 0


def _inflate(stream: "zlib._Decompress", chunk: bytes) -> bytes:
    try:
        return stream.decompress(chunk, PIECE_BYTES)
    except zlib.error as error:
        raise _not_decodable(str(error)) from error


class _Zstd:
    """One or more zstd frames (RFC 8878)."""

    def __init__(self) -> None:
        self._frame = self._new_frame()
        self._is_open = False
        self._empty = _EmptyMembers()

    @staticmethod
    def _new_frame() -> "zstandard.ZstdDecompressionObj":  # the C backend does not export the name
        return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES).decompressobj()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        for start in range(0, len(chunk), ZSTD_STEP_BYTES):
            step = chunk[start : start + ZSTD_STEP_BYTES]
            while step:
                if self._frame.eof:
                    self._frame = self._new_frame()
                piece = self._decompress(step)
                step = self._frame.unused_data if self._frame.eof else b""
                self._is_open = not self._frame.eof
                self._empty.note(piece, at_end=self._frame.eof)
                yield piece

    def _decompress(self, step: bytes) -> bytes:
        try:
            return self._frame.decompress(step)
        except zstandard.ZstdError as error:
            raise _not_decodable(str(error)) from error

    def finish(self) -> None:
        if self._is_open:
            raise _not_decodable("the zstd data ends too early")


_DECODERS: Final[Mapping[str, Callable[[], Decoder]]] = {
    "identity": _Identity,
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "zstd": _Zstd,
}
