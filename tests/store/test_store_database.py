"""The SQLite file: lock, migrations, durability, query plans, a disk that is full or broken."""

import os
import sqlite3
import threading
from contextlib import asynccontextmanager

import pytest
import trio

from store.errors import DataDirLocked, QueueFull, StorageFull, StoreClosed, StoreUnavailable
from store.job import Status
from store.local import database, open_local
from store.local.database import connected, locked, migrations
from store.local.ledger import FULL_S, Ledger
from store.policy import EndpointSlots, StorePolicy, TenantLimits, Tenants, UpstreamSlots
from store.testing.making import claim_one, complete, parked, present, read, submission, submit
from store.values import Filter

NOW = 1_800_000_000_000
UPSTREAM = UpstreamSlots("ocr", (EndpointSlots("http://ocr.example", 2),))


@asynccontextmanager
async def opened(folder, **options):
    policy = options.pop("policy", StorePolicy(min_free_bytes=0))
    clock = options.pop("clock", lambda: NOW)
    async with open_local(folder, policy, replica="boot", clock=clock, **options) as store:
        yield store


def test_database_lock_refuses_a_second_holder(tmp_path):
    """A second opener of a data_dir is refused, told which folder and which process hold it."""
    with (
        locked(tmp_path),
        pytest.raises(DataDirLocked, match=rf"{tmp_path}.*pid {os.getpid()}"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        pass


def test_database_is_private(tmp_path):
    """Documents are for this user alone: the folder is made without access for others."""
    with locked(tmp_path / "data"):
        assert (tmp_path / "data" / "payloads").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("mode", "number"), [("FULL", 2), ("NORMAL", 1), ("OFF", 0)])
def test_database_writes_ahead_with_the_asked_durability(tmp_path, mode, number):
    """WAL, and the synchronous level that the durability promises."""
    with locked(tmp_path), connected(tmp_path, mode) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == number


def test_database_migrates_once_and_in_order(tmp_path, monkeypatch):
    """Each migration runs once, in order, and the schema number says which have run."""
    with locked(tmp_path), connected(tmp_path, "OFF"):
        pass
    last = migrations()[-1][0]
    added = [
        *migrations(),
        (last + 1, "CREATE TABLE second (x);"),
        (last + 2, "ALTER TABLE second ADD COLUMN y;"),
    ]
    monkeypatch.setattr(database, "migrations", lambda: added)
    for _ in range(2):
        with locked(tmp_path), connected(tmp_path, "OFF") as connection:
            assert connection.execute("PRAGMA user_version").fetchone()[0] == last + 2
            assert [row["name"] for row in connection.execute("PRAGMA table_info(second)")] == ["x", "y"]


def test_database_of_a_newer_release_is_refused(tmp_path):
    """A schema that this release does not know is left alone."""
    with locked(tmp_path), connected(tmp_path, "OFF") as connection:
        connection.execute("PRAGMA user_version = 99")
    with (
        locked(tmp_path),
        pytest.raises(sqlite3.DatabaseError, match="schema 99"),
        connected(tmp_path, "OFF"),
    ):
        pass


async def test_database_null_folder_keeps_nothing():
    """data_dir null: everything works, the durability says memory, and the folder is gone afterwards."""
    async with opened(None) as store:
        assert store.durability == "memory"
        folder = store._ledger._data_dir
        await submit(store)
        assert folder.exists()
    assert not folder.exists()


@pytest.mark.parametrize(("fsync", "word"), [(True, "disk"), (False, "process")])
async def test_database_durability_is_said(tmp_path, fsync, word):
    """What a 202 promises follows from fsync."""
    async with opened(tmp_path, fsync=fsync) as store:
        assert store.durability == word


async def test_database_time_never_goes_back(tmp_path):
    """A wall clock that is set back does not set the ledger back, over a restart either."""
    async with opened(tmp_path, clock=lambda: NOW) as store:
        await submit(store)
        assert store.now() == NOW
    async with opened(tmp_path, clock=lambda: NOW - 3_600_000) as store:
        assert store.now() == NOW


async def test_database_orphaned_files_are_swept(tmp_path):
    """Payload files that no record names are removed at start; those that one names stay."""
    async with opened(tmp_path) as store:
        job = await submit(store, b"x" * 200_000)
    (tmp_path / "payloads" / "abandoned.draft").write_bytes(b"half")
    (tmp_path / "payloads" / "nobody").write_bytes(b"whole, but its commit never came")
    async with opened(tmp_path):
        assert [path.name for path in (tmp_path / "payloads").iterdir()] == [job.payload.id]


class Pages:
    """Bounds the database's size from now on, as a full disk does."""

    def __init__(self, store, pages):
        self._connection = store._ledger._connection
        used = self._connection.execute("PRAGMA page_count").fetchone()[0]
        self._connection.execute(f"PRAGMA max_page_count = {used + pages}")

    def free(self):
        self._connection.execute("PRAGMA max_page_count = 1000000")


async def test_database_full_disk_refuses_submits_and_settles_the_rest(tmp_path):
    """With the disk full, submits are refused with StorageFull, also in one batch with an outcome, which is written."""
    elapsed = 0.0
    async with opened(tmp_path) as store:
        store._ledger.elapsed = lambda: elapsed
        await submit(store)
        claimed = await claim_one(store, UPSTREAM)
        for _ in range(40):
            await submit(store, b"y" * 30_000, tenant="other")
        full = Pages(store, 0)
        refused = []

        async def crowd():
            try:
                await submit(store, b"z" * 60_000)
            except StorageFull as refusal:
                refused.append(refusal)

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(crowd)
            nursery.start_soon(complete, store, claimed)
        assert len(refused) == 8
        assert (await present(store, claimed.job.id)).status is Status.COMPLETED
        counts = await store.jobs.counts()
        assert counts.depth == 40, "what was refused is not counted"
        full.free()
        with pytest.raises(StorageFull):
            await submit(store)
        elapsed += FULL_S + 1
        await submit(store)


async def test_database_low_disk_refuses_submits(tmp_path, monkeypatch):
    """With less than min_free_bytes free, a submit is refused before its body is read, and finishing goes on."""
    async with opened(tmp_path) as store:
        await submit(store)
        monkeypatch.setattr(Ledger, "room_for_submits", lambda _self: False)
        with pytest.raises(StorageFull):
            await store.jobs.may_admit("acme")
        with pytest.raises(StorageFull):
            await submit(store)
        assert await complete(store, await claim_one(store, UPSTREAM))


async def test_database_broken_file_ends_the_store(tmp_path, monkeypatch):
    """An error that is not a full disk is not lived with: it leaves the store's block."""

    def explode(_self, _tickets):
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    with pytest.RaisesGroup(sqlite3.OperationalError, flatten_subgroups=True):
        async with opened(tmp_path) as store:
            monkeypatch.setattr(Ledger, "_together", explode)
            with pytest.raises(StoreClosed):
                await submit(store)
            await trio.sleep_forever()


async def test_database_results_are_compressed_at_rest(tmp_path):
    """A large result is smaller on disk than it is, and reads back as it was."""
    async with opened(tmp_path) as store:
        await submit(store)
        content = b'{"word": "again"}' * 50_000
        done = await complete(store, await claim_one(store, UPSTREAM), content)
        assert (tmp_path / "payloads" / done.result.id).stat().st_size < len(content) / 10
        assert await read(store, done.result) == content


async def test_database_restart_makes_ready_jobs_claimable(tmp_path):
    """Jobs that were ready when the process ended wake a dispatcher of the next one."""
    async with opened(tmp_path) as store:
        job = await submit(store)
    async with opened(tmp_path) as store:
        await store.jobs.wait_claimable(UPSTREAM)
        assert (await claim_one(store, UPSTREAM)).job.id == job.id


async def test_database_restart_unparks_lanes(tmp_path):
    """A lane parked at a bound when the process died is not parked for ever."""
    policy = StorePolicy(min_free_bytes=0, tenants=Tenants(default=TenantLimits(max_processing=1)))
    async with opened(tmp_path, policy=policy) as store:
        await submit(store)
        second = await submit(store)
        await claim_one(store, UPSTREAM)
        assert not await store.jobs.claim(UPSTREAM, 1)
        assert await parked(store, second)
    async with open_local(tmp_path, policy, replica="next", clock=lambda: NOW) as store:
        await store.jobs.reclaim()
        assert len(await store.jobs.claim(UPSTREAM, 2)) == 1


async def test_database_broken_result_is_an_os_error(tmp_path):
    """A stored result whose bytes are damaged raises OSError, not something of a library."""
    async with opened(tmp_path) as store:
        await submit(store)
        done = await complete(store, await claim_one(store, UPSTREAM), b"x" * 200_000)
        (tmp_path / "payloads" / done.result.id).write_bytes(b"not zstd at all" * 100)
        with pytest.raises(OSError, match="broken"):
            await read(store, done.result)


async def test_database_defective_read_fails_its_caller_alone(tmp_path):
    """A read that SQLite cannot take (a number beyond 64 bits) raises at its caller; the store goes on."""
    async with opened(tmp_path) as store:
        job = await submit(store)
        with pytest.raises(OverflowError):
            await store.jobs.list(Filter(tenant="acme", changed_after=10**30), limit=10)
        assert (await present(store, job.id)).id == job.id


async def test_database_defective_write_undoes_itself_alone(tmp_path):
    """A submit that SQLite cannot take raises at its caller, counts nothing, leaves nothing, and the store goes on."""
    async with opened(tmp_path) as store:
        await submit(store)
        with pytest.raises(OverflowError):
            await submit(store, b"x" * 100_000, priority=10**30)
        counts = await store.jobs.counts()
        assert (counts.depth, counts.stored_bytes) == (1, len(b"document"))
        assert await complete(store, await claim_one(store, UPSTREAM))


async def test_database_evicted_files_are_unlinked(tmp_path):
    """Retention gives the disk back: the files of an evicted job's payload and result go with it."""
    now = NOW
    policy = StorePolicy(min_free_bytes=0, result_ttl_ms=1000)
    async with opened(tmp_path, policy=policy, clock=lambda: now) as store:
        await submit(store, b"x" * 200_000)
        done = await complete(store, await claim_one(store, UPSTREAM), bytes(range(256)) * 1000)
        await store.jobs.audited([done.id])
        assert len(list((tmp_path / "payloads").iterdir())) == 2
        now += 1001
        assert (await store.jobs.sweep()).evicted == 1
        assert not list((tmp_path / "payloads").iterdir())
        assert (await store.jobs.counts()).stored_bytes == 0


@pytest.mark.parametrize("bound", [{"max_queued": 1}, {"max_stored_bytes": 250_000}])
async def test_database_refused_files_are_unlinked(tmp_path, bound):
    """A large document whose submit is refused leaves no file, whichever bound refuses it (AT-5)."""
    async with opened(tmp_path, policy=StorePolicy(min_free_bytes=0, **bound)) as store:
        await submit(store, b"x" * 200_000)
        async with store.payloads.receive(0) as draft:
            await draft.write(b"y" * 200_000)
            blob = await draft.seal(sha256="0" * 64, content_type="application/pdf")
            with pytest.raises((QueueFull, StorageFull)):
                await store.jobs.create(submission(blob, NOW), draft)
        assert len(list((tmp_path / "payloads").iterdir())) == 1


async def test_database_unpostable_submit_leaves_no_file(tmp_path):
    """A submit that the store's queue has no room for leaves no file either."""
    async with opened(tmp_path) as store:
        store.jobs._writer._bound = 0
        with pytest.raises(StoreUnavailable):
            await submit(store, b"y" * 200_000)
        assert not list((tmp_path / "payloads").iterdir())
        store.jobs._writer._bound = 10_000


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda _data: b""])
async def test_database_shortened_result_is_an_os_error(tmp_path, damage):
    """A stored result that lost its end is not served as if it were complete."""
    async with opened(tmp_path) as store:
        await submit(store)
        done = await complete(store, await claim_one(store, UPSTREAM), bytes(range(256)) * 1000)
        path = tmp_path / "payloads" / done.result.id
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(OSError, match="broken"):
            await read(store, done.result)


async def test_database_is_not_closed_under_a_busy_thread(tmp_path, mock_clock):
    """A thread that hangs past the store timeout is waited for before its connection is closed (a crash otherwise)."""
    begun, go, closed = threading.Event(), threading.Event(), trio.Event()

    def hang(tx):
        begun.set()
        assert go.wait(10)
        return tx.connection.execute("SELECT count(*) FROM job").fetchone()[0]

    async def use():
        async with opened(tmp_path) as store:
            store.jobs._post("hang", hang)
            assert await trio.to_thread.run_sync(begun.wait, 10)
        closed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
        assert await trio.to_thread.run_sync(begun.wait, 10)
        for _ in range(10):
            mock_clock.jump(0.5)
            await trio.lowlevel.checkpoint()
        assert not closed.is_set()
        go.set()
        await closed.wait()
    async with opened(tmp_path):
        pass
