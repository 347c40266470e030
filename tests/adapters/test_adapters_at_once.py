"""Writing what the kernel takes at once, and nothing more."""

import socket as stdlib

import pytest
import trio

from adapters.at_once import AT_ONCE_BYTES, write_at_once


@pytest.fixture
def pair():
    """Two ends of a connection."""
    ours, theirs = trio.socket.socketpair()
    with ours, theirs:
        yield ours, theirs


async def test_at_once_writes_all_that_fits(pair) -> None:
    """What the kernel takes is written, and no rest is left."""
    ours, theirs = pair
    assert write_at_once(ours, b"hello") == b""
    assert await theirs.recv(100) == b"hello"


async def test_at_once_leaves_what_does_not_fit(pair) -> None:
    """A socket that is full takes a part, then nothing; what was written and the rest are the whole."""
    ours, theirs = pair
    ours.setsockopt(stdlib.SOL_SOCKET, stdlib.SO_SNDBUF, 4096)
    data = bytes(range(256)) * (AT_ONCE_BYTES // 256)
    written = b""
    while not (rest := write_at_once(ours, data)):
        written += data
    written += data.removesuffix(rest)
    assert write_at_once(ours, b"more") == b"more"
    read = b""
    while len(read) < len(written):
        read += await theirs.recv(65536)
    assert read == written


async def test_at_once_leaves_much_to_trio(pair) -> None:
    """More than AT_ONCE_BYTES is not begun here."""
    ours, _ = pair
    data = b"x" * (AT_ONCE_BYTES + 1)
    assert write_at_once(ours, data) is data


async def test_at_once_says_that_the_connection_is_gone(pair) -> None:
    """A broken connection and a closed socket are OSErrors, and no other descriptor is written to."""
    ours, theirs = pair
    theirs.close()
    with pytest.raises(OSError, match="pipe"):
        write_at_once(ours, b"x")
    ours.close()
    with pytest.raises(OSError, match="descriptor"):
        write_at_once(ours, b"x")
