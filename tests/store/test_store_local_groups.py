"""Groups on the embedded ledger: what a crash leaves of them, what a large one costs, where they come from."""

import signal
import sqlite3
import sys
import tracemalloc
from contextlib import closing, contextmanager
from subprocess import PIPE

import pytest
import trio
from local_harness import local_maker

from store import transitions
from store.api_groups import STAGED_AT_ONCE, STAGING_MS
from store.job import Blob, GroupPolicy, GroupTerms, Status
from store.local import database, open_local
from store.local.database import DATABASE, connected, locked, migrations
from store.local.records import BORN, HOT, born_values, encode_submission, hot_values
from store.policy import StorePolicy
from store.testing.group_making import (
    WIDE,
    agreed,
    bring,
    child_of,
    claim_all,
    group,
    parent_submission,
)
from store.testing.making import complete, fail, present, sha256, submission
from store.ulid import new_job_id

NOW = 1_800_000_000_000
LARGE = 10_000
FLAT_BYTES = 12 * 2**20
"""The most that the process may hold at a time for a group of any size: portions, statements, caches."""
PATIENCE_S = 60
TABLES = ("fanout", "entry", "adopted", "staging", "chore", "job", "asked", "trail", "blob", "blobref")

DOOMED = """
import sys
from pathlib import Path
import trio
from store.local import open_local
from store.policy import StorePolicy
from store.testing.group_making import bring, child_of, claim_all, group
from store.testing.making import complete

async def main(folder, work):
    opened = open_local(folder, StorePolicy(min_free_bytes=0), replica="doomed", clock=lambda: {now}, fsync=False)
    async with opened as store:
        await work(store)

async def stage(store):
    blobs = await bring(store, "job_staged", b"small", b"large" * 50_000)
    for first in range(0, 10_000, 100):
        children = [child_of("job_staged", n, blobs[n % 2], {now}) for n in range(first, first + 100)]
        await store.jobs.stage("job_staged", children)
        print(first, flush=True)
    await trio.sleep_forever()

async def run(store):
    parent = await group(store, 300, 7)
    print(parent.id, flush=True)
    while claimed := await claim_all(store):
        for each in claimed:
            await complete(store, each)
            print(each.job.id, flush=True)

trio.run(main, Path(sys.argv[1]), globals()[sys.argv[2]])
"""
"""A process that stages, or runs a group, until it is killed."""


async def killed(folder, work: str, lines: int) -> list[str]:
    """Let a process say so many lines, and kill it in the middle of what it does; all it said."""
    command = [sys.executable, "-c", DOOMED.replace("{now}", str(NOW)), str(folder), work]
    said = b""
    with trio.fail_after(PATIENCE_S):
        process = await trio.lowlevel.open_process(command, stdout=PIPE)
        async with process.stdout:
            while said.count(b"\n") < lines:
                piece = await process.stdout.receive_some()
                assert piece, "it ended by itself"
                said += piece
            process.send_signal(signal.SIGKILL)
            async for piece in process.stdout:
                said += piece
            await process.wait()
    return said.decode().split("\n")[:-1]


def opened(folder, clock):
    return open_local(folder, StorePolicy(min_free_bytes=0), replica="next", clock=clock, fsync=False)


def rows(folder) -> dict[str, int]:
    """How many rows each table has."""
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        return {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}


async def test_local_groups_killed_while_staging(tmp_path):
    """kill -9 in the middle of staging leaves nothing half-made: nobody sees it, and its time is over by itself (GW-14)."""
    await killed(tmp_path, "stage", 5)
    now = NOW
    async with opened(tmp_path, lambda: now) as store:
        assert await store.jobs.get("job_staged") is None
        assert (await store.jobs.counts()).depth == 0
        assert (await store.jobs.counts()).stored_bytes > 0
        now += STAGING_MS + 1
        await store.jobs.sweep()
        await store.jobs.wait_idle()
        assert (await store.jobs.counts()).stored_bytes == 0
        assert not list((tmp_path / "payloads").iterdir())
    assert not any(rows(tmp_path).values())


async def test_local_groups_killed_in_the_middle(tmp_path):
    """kill -9 in the middle of a group loses nothing and repeats nothing that was recorded; the window is as before (GW-14)."""
    parent_id, *completed = await killed(tmp_path, "run", 60)
    async with opened(tmp_path, lambda: NOW + 1) as store:
        await store.jobs.reclaim()
        parent = await agreed(store, parent_id)
        assert parent.counts.completed >= len(completed)
        for job_id in completed:
            assert (await present(store, job_id)).status is Status.COMPLETED
        again = []
        while claimed := await claim_all(store):
            assert len(claimed) <= 7
            for each in claimed:
                await complete(store, each)
                again.append(each.job.id)
        assert not set(again) & set(completed)
        done = await agreed(store, parent_id)
        assert (done.status, done.counts.completed) == (Status.COMPLETED, 300)
        assert (await store.jobs.counts()).depth == 0


@pytest.mark.parametrize("stop", [False, True])
async def test_local_groups_portions_go_on_after_a_restart(tmp_path, mock_clock, stop):
    """What was to be done behind the step is done after a restart: a wide window opens, a stopped group ends (GW-14)."""
    async with local_maker(tmp_path, mock_clock)(StorePolicy()) as harness:
        parent = await group(harness.store, 1_000, 900, GroupPolicy.FAIL_FAST)
        if stop:
            await harness.settle()
            (claimed,) = await harness.store.jobs.claim(WIDE, 1)
            await fail(harness.store, claimed)
        await harness.orphan()
        await harness.settle()
        known = await agreed(harness.store, parent.id)
        assert known.status is (Status.FAILED if stop else Status.QUEUED)


@contextmanager
def counted(store):
    """Counts the statements of the writing thread."""
    connection, statements = store.jobs._ledger._connection, []
    connection.set_trace_callback(statements.append)
    try:
        yield statements
    finally:
        connection.set_trace_callback(None)


async def staged(store, total: int) -> str:
    """Stage a group of this size, and check that each portion is one operation."""
    parent_id = new_job_id(store.now())
    (blob,) = await bring(store, parent_id, b"document")
    for first in range(0, total, STAGED_AT_ONCE):
        indexes = range(first, min(first + STAGED_AT_ONCE, total))
        with counted(store) as statements:
            await store.jobs.stage(parent_id, [child_of(parent_id, n, blob, NOW) for n in indexes])
        assert sum(each.startswith("BEGIN") for each in statements) == 1
    return parent_id


async def costs(harness, monkeypatch, total: int) -> list[int]:
    """Statements of each step in the life of a group of this size; what is done behind it aside."""
    store, costs = harness.store, []

    async def step(action):
        with counted(store) as statements, monkeypatch.context() as patched:
            patched.setattr(store.jobs, "do_chores", lambda: None)
            await action()
        costs.append(len(statements))
        store.jobs.do_chores()
        await harness.settle()

    parent_id = await staged(store, total)
    terms = GroupTerms(total, 4, GroupPolicy.FAIL_FAST)
    await step(lambda: store.jobs.create_group(parent_submission(parent_id, terms)))
    claimed = list(await store.jobs.claim(WIDE, 4))
    await step(lambda: complete(store, claimed.pop(0)))
    await step(lambda: store.jobs.children(parent_id, first=total // 2, limit=10))
    await step(lambda: fail(store, claimed.pop(0)))
    for each in claimed:
        await complete(store, each)
    await harness.settle()
    assert (await present(store, parent_id)).status is Status.FAILED
    return costs


async def test_local_groups_cost_no_more_for_more_children(tmp_path, mock_clock, monkeypatch):
    """Making a group, a child's end and the stop of the group do as much in SQLite for 10,000 children as for 100 (GW-14)."""
    async with local_maker(tmp_path, mock_clock)(StorePolicy()) as harness:
        small = await costs(harness, monkeypatch, 100)
        large = await costs(harness, monkeypatch, LARGE)
    assert small == large


async def test_local_groups_stay_flat_in_memory(tmp_path, mock_clock):
    """A group of 10,000 is made, run, stopped and evicted without ever being held as a whole (GW-14)."""
    async with local_maker(tmp_path, mock_clock)(StorePolicy(result_ttl_ms=1_000)) as harness:
        tracemalloc.start()
        try:
            await _live(harness)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < FLAT_BYTES, f"{peak} bytes at a time"
        folder = harness.store.jobs._ledger._data_dir
    assert not any(rows(folder).values())


async def _live(harness) -> None:
    """The whole life of a large group."""
    store = harness.store
    parent_id = await staged(store, LARGE)
    await store.jobs.create_group(parent_submission(parent_id, GroupTerms(LARGE, 300)))
    for _ in range(2):
        for claimed in await store.jobs.claim(WIDE, 64):
            await complete(store, claimed)
    await store.jobs.cancel(parent_id)
    await harness.settle()
    done = await present(store, parent_id)
    assert (done.status, done.counts.completed) == (Status.CANCELLED, 128)
    await store.jobs.audited([parent_id])
    while due := await store.jobs.audit_due(finished_before=harness.clock() + 1, limit=500):
        await store.jobs.audited([job.id for job in due])
    await harness.advance(2)
    while (await store.jobs.sweep()).more:
        pass
    await harness.settle()
    assert not await store.jobs.children(parent_id, first=0, limit=1)


async def test_local_groups_name_documents_of_an_older_ledger(tmp_path, monkeypatch):
    """Documents that a release without groups has stored are found by their sha256 after the upgrade (GW-14)."""
    known = migrations()
    digest = sha256(b"document")
    asked = submission(Blob("blob", 8, digest, "application/pdf"), NOW)
    job = transitions.created(asked, seq=1, change=1, now=NOW)
    columns = dict(zip(BORN + HOT, born_values(job) + hot_values(job), strict=True))
    del columns["digest"]
    with monkeypatch.context() as patched, locked(tmp_path):
        patched.setattr(database, "migrations", lambda: known[:3])
        with connected(tmp_path, "OFF") as connection:
            connection.execute(
                f"INSERT INTO job ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
                list(columns.values()),
            )
            connection.execute("INSERT INTO asked VALUES (1, ?)", (encode_submission(asked),))
    async with opened(tmp_path, lambda: NOW) as store:
        assert await store.jobs.documents("acme", [f"sha256:{digest}"]) == [asked.payload]
        assert await store.jobs.documents("other", [f"sha256:{digest}"]) == [None]
