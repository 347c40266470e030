"""What Trio spends a step of the task on though nothing is waited for, without that step."""

import os
from typing import Final

import trio

AT_ONCE_BYTES: Final = 64 * 1024
"""More than this is written by Trio, which lets others go on between."""


async def acquire_at_once(lock: trio.Lock | trio.Semaphore) -> None:
    """Acquire a lock; a checkpoint only when it has to be waited for."""
    try:
        lock.acquire_nowait()
    except trio.WouldBlock:
        await lock.acquire()


def write_at_once(socket: trio.socket.SocketType, data: bytes) -> bytes:
    """Write the beginning of some bytes; returns the rest, all of it when they are many or the socket is full.

    Trio's own sending is a checkpoint even when the kernel takes everything, which it does for nearly every request and
    answer: a visit to the scheduler and the selector for nothing.

    Args:
        socket: of a plain connection; nobody else writes to it meanwhile.
        data: all that is to be written.

    Raises:
        OSError: the connection is broken or closed.
    """
    if len(data) > AT_ONCE_BYTES:
        return data
    try:
        return data[os.write(socket.fileno(), data) :]
    except BlockingIOError:
        return data
