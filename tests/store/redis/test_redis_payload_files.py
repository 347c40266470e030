"""Large payloads as files of a folder that all replicas see; what Redis holds of them is where they are."""

import os
import time

import pytest
import trio
from payload_harness import content, open_payloads, until
from redis_server import redis_server

from store.policy import INLINE_BYTES
from store.redis.payloads import ORPHAN_S

LARGE = 3 * 2**20 + 5


@pytest.fixture(scope="module")
def server():
    with redis_server() as running:
        yield running


@pytest.fixture
async def harness(server, tmp_path):
    async with open_payloads(server, folder=tmp_path / "shared") as opened:
        yield opened


def files(harness):
    """Names of the files of this store."""
    (folder,) = (harness.folder).iterdir()
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("result", [False, True])
async def test_redis_payload_file_comes_back(harness, result):
    """A large document or result is a file, no chunk of it in Redis, and is read back as it was written."""
    blob = await harness.store(content(LARGE), result=result)
    assert files(harness) == [blob.id]
    fields = {
        b"f": b"1",
        b"n": b"1",
        b"s": str((next(harness.folder.iterdir()) / blob.id).stat().st_size).encode(),
    }
    assert harness.client.hgetall(harness.key(blob.id)) == fields | ({b"z": b"1"} if result else {})
    assert await harness.read(blob) == content(LARGE)


async def test_redis_payload_file_is_for_large_ones(harness):
    """Up to 64 KiB a blob travels with its record, folder or not."""
    blob = await harness.store(content(INLINE_BYTES))
    assert not files(harness)
    assert await harness.read(blob) == content(INLINE_BYTES)


async def test_redis_payload_file_of_one_replica_is_read_by_another(harness, server):
    """What one replica wrote another reads; one without the folder says what its configuration lacks."""
    blob = await harness.store(content(LARGE))
    async with open_payloads(server, folder=harness.folder, prefix=harness.prefix) as other:
        assert await other.read(blob) == content(LARGE)
    async with open_payloads(server, prefix=harness.prefix) as without:
        with pytest.raises(OSError, match=r"payloads\.dir"):
            await without.read(blob)


async def test_redis_payload_file_folder_is_private_and_of_one_store(harness, server):
    """Stores that share a folder have one each in it, which nobody else may read."""
    blob = await harness.store(content(LARGE))
    async with open_payloads(server, folder=harness.folder, prefix="another/store") as other:
        await other.payloads.sweep_orphans((int(time.time()) + 2 * ORPHAN_S) * 1000)
        assert len(list(harness.folder.iterdir())) == 2
    assert all(folder.stat().st_mode & 0o077 == 0 for folder in harness.folder.iterdir())
    assert await harness.read(blob) == content(LARGE)


async def test_redis_payload_file_goes_with_its_last_reference(harness):
    """A file is unlinked once a step dropped its last reference; who reads it finishes, nobody opens it after (AT-13)."""
    blob = await harness.store(content(LARGE))
    async with harness.payloads.open(blob) as reader:
        read = await anext(reader)
        harness.evict(blob)
        harness.payloads.removed(blob.id, filed=True)
        await until(lambda: not files(harness))
        async for piece in reader:
            read += piece
    assert read == content(LARGE)
    with pytest.raises(KeyError):
        await harness.read(blob)


async def test_redis_payload_file_that_is_gone_is_a_key_error(harness):
    """A blob whose file is gone already is not there, though its hash still is."""
    blob = await harness.store(content(LARGE))
    (next(harness.folder.iterdir()) / blob.id).unlink()
    with pytest.raises(KeyError):
        await harness.read(blob)


async def test_redis_payload_file_nobody_took_is_unlinked(harness):
    """A draft that ends without a record, or whose record is refused, leaves no file."""
    async with harness.payloads.receive(LARGE) as draft:
        await draft.write(content(LARGE))
        assert files(harness)
    assert not files(harness)
    async with harness.payloads.receive(LARGE) as draft:
        await draft.write(content(LARGE))
        await draft.seal(sha256="0" * 64, content_type="text/plain")
        staged = draft.staged()
        draft.hand_over()
    assert files(harness) == [staged.blob_id]
    harness.payloads.refused(staged)
    await until(lambda: not files(harness))


async def test_redis_payload_file_told_last_is_unlinked_when_the_store_closes(server, tmp_path):
    """A replica that leaves unlinks what it was told to before it goes."""
    async with open_payloads(server, folder=tmp_path) as harness:
        blob = await harness.store(content(LARGE))
        harness.payloads.removed(blob.id, filed=True)
    assert not files(harness)


async def test_redis_payload_file_orphans_are_swept_by_age(harness):
    """Old files and drafts that no record names go at start; young, named and foreign ones stay."""
    named = await harness.store(content(LARGE))
    (folder,) = harness.folder.iterdir()
    for name in ("b_old", "b_older.draft", "b_young", "readme"):
        (folder / name).write_bytes(b"x")
    for name in (named.id, "b_old", "b_older.draft", "b_young", "readme"):
        age = ORPHAN_S + (-60 if name == "b_young" else 60)
        os.utime(folder / name, (time.time() - age,) * 2)
    await harness.payloads.sweep_orphans(int(time.time() * 1000))
    assert set(files(harness)) == {named.id, "b_young", "readme"}


async def test_redis_payload_file_cancelled_upload_leaves_none(harness):
    """An upload that is cut in the middle leaves no file."""
    with trio.CancelScope() as scope:
        async with harness.payloads.receive(LARGE) as draft:
            await draft.write(content(LARGE))
            scope.cancel()
            await draft.write(content(LARGE))
    assert scope.cancelled_caught
    assert not files(harness)
