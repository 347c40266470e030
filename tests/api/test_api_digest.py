"""Hashing while bytes pass."""

import hashlib
import threading

import pytest

from gateway.http.submit import digest as module
from gateway.http.submit.digest import ON_LOOP_BYTES, STEP_BYTES, Digest


@pytest.mark.parametrize("size", [0, 1, ON_LOOP_BYTES, ON_LOOP_BYTES + 1, STEP_BYTES, 3 * STEP_BYTES + 7])
@pytest.mark.parametrize("chunk", [1000, 65536, 4 * STEP_BYTES])
async def test_sha256(size, chunk):
    """The digest is SHA-256 whatever the size and the chunks."""
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    digest = Digest()
    for start in range(0, size, chunk):
        await digest.update(data[start : start + chunk])
    assert await digest.hexdigest() == hashlib.sha256(data).hexdigest()
    assert digest.size == size


async def test_small_on_the_loop_large_in_a_thread(monkeypatch):
    """Up to 64 KiB no thread is asked; larger documents are hashed off the loop, 1 MiB at a time (GW-16)."""
    steps = []

    class Spy:
        def update(self, data):
            steps.append((len(data), threading.current_thread() is threading.main_thread()))

        def hexdigest(self):
            return ""

    monkeypatch.setattr(module.hashlib, "sha256", Spy)
    small = Digest()
    await small.update(b"x" * ON_LOOP_BYTES)
    await small.hexdigest()
    assert steps == [(ON_LOOP_BYTES, True)]
    steps.clear()
    large = Digest()
    for _ in range(40):
        await large.update(b"x" * 65536)
    await large.hexdigest()
    assert [size for size, _ in steps] == [STEP_BYTES, STEP_BYTES, 8 * 65536]
    assert not any(on_loop for _, on_loop in steps)
