"""Groups on Redis: what a step costs, what is run again, what a replica leaves to the others, what is left at the end."""

from collections import Counter
from contextlib import asynccontextmanager, contextmanager

import pytest
from redis_harness import redis_maker
from shared_harness import shared_redis_maker
from test_redis_census import strays

from gateway.clock import wall_clock
from store.api_groups import STAGED_AT_ONCE, STAGING_MS
from store.job import GroupPolicy, GroupTerms, Status
from store.policy import INLINE_BYTES, StorePolicy
from store.redis import Place, RedisStore, open_redis
from store.testing import CASES
from store.testing.group_making import (
    WIDE,
    agreed,
    all_children,
    bring,
    child_of,
    claim_all,
    create_group,
    group,
    parent_submission,
    regroup,
    stage,
)
from store.testing.making import claim_nothing, claim_one, complete, fail, limits, pool, present, read
from store.ulid import new_job_id

ROOMY = StorePolicy(max_queued=100_000, tenants=limits())
AGAIN = frozenset({"stage", "unstage", "create_group", "cancel", "claim", "finish", "groups", "audited"})
"""Steps that answer the same when they are run again."""
CACHED = "case_portion_staged_twice_is_staged_once"
"""Looks whether bytes are gone: a replica that did not hear so may have small ones in its cache."""
GROUP_CASES = sorted(
    name
    for name, function in CASES.items()
    if function.__module__.startswith("store.testing.contract_group")
    and "hundreds" not in name
    and name != CACHED
)


@pytest.fixture
def make(shared_redis, redis_client, mock_clock):
    return shared_redis_maker(shared_redis.unix_url, redis_client, mock_clock)


# ----------------------------------------------------------------------------------------------- run again


def lose_answers(store: RedisStore) -> None:
    """Have each of these steps carried out twice, and the first answer lost, as after a break."""
    post = store._line.post

    def heard(end, *, abandoned):
        effects, _ = end.unwrap()
        store.effects.publish(effects)

    def twice(request, name, **options):
        if name in AGAIN:
            post(request, name, apply=heard, bounded=False)
        return post(request, name, **options)

    store._line.post = twice


@pytest.mark.parametrize("name", GROUP_CASES)
async def test_redis_groups_whose_answers_are_lost(name, shared_redis, mock_clock):
    """Whatever holds of groups holds when a step is sent again because its answer was lost (GW-14, GW-19)."""

    @asynccontextmanager
    async def make(policy):
        async with redis_maker(shared_redis.unix_url, mock_clock)(policy) as harness:
            boot = harness.boot

            async def boot_forgetful():
                store = await boot()
                lose_answers(store)
                return store

            harness.boot = boot_forgetful
            lose_answers(harness.store)
            yield harness

    await CASES[name](make)


# ------------------------------------------------------------------------------------------------- its cost


@contextmanager
def commands(client):
    """How many commands the server carries out inside the block, by name."""
    client.config_resetstat()
    counted: Counter[str] = Counter()
    yield counted
    told = client.info("commandstats")
    counted.update({name.removeprefix("cmdstat_"): stat["calls"] for name, stat in told.items()})
    for own in ("info", "config", "config|resetstat", "script", "script|load", "client", "time"):
        counted.pop(own, None)


async def test_redis_groups_end_of_a_child_costs_the_same_in_any_group(make, redis_client, mock_clock):
    """A child's end, and a failure that drops all that are held, take as many commands among 10 as among 2,000 (GW-14)."""
    costs = []
    for total in (10, 2_000):
        async with make(ROOMY) as harness:
            store = harness.store
            store.effects.settle_groups = lambda: None  # what is left to be done in portions is another step
            await group(store, total, 2, GroupPolicy.FAIL_FAST)
            await harness.advance(0)
            for end in (complete, fail):
                for _ in range(2 if end is complete else 1):
                    claimed = await claim_one(store)
                    with commands(redis_client) as counted:
                        await end(store, claimed)
                costs.append((end.__name__, dict(counted)))
    assert costs[:2] == costs[2:]


async def test_redis_groups_creation_costs_the_same_for_any_group(make, redis_client, mock_clock):
    """One round trip for each 500 children, and a last step that takes as many commands for 10 as for 2,000 (GW-14)."""
    costs = []
    for total in (10, 2_000):
        async with make(ROOMY) as harness:
            store = harness.store
            with commands(redis_client) as staged:
                parent_id = await stage(store, total)
            assert staged["evalsha"] == 1 + -(-total // STAGED_AT_ONCE)
            with commands(redis_client) as made:
                await store.jobs.create_group(parent_submission(parent_id, GroupTerms(total, 5)))
            costs.append(dict(made))
    assert costs[0] == costs[1]


async def test_redis_groups_ten_thousand_children_are_small(make, redis_client, mock_clock):
    """A group of 10,000 takes at most half a KiB of memory for each child that is held, and is gone in portions (GW-14)."""
    async with make(ROOMY) as harness:
        store = harness.store
        before = redis_client.info("memory")["used_memory"]
        parent = await group(store, 10_000, 50)
        await harness.advance(0)
        taken = redis_client.info("memory")["used_memory"] - before
        assert taken / 10_000 < 512
        await agreed(store, parent.id)
        for claimed in await store.jobs.claim(WIDE, 50):
            await complete(store, claimed)
        assert (await agreed(store, parent.id)).progress == 50 / 10_000
        await store.jobs.delete(parent.id)
        await harness.advance(0)
        due = await store.jobs.audit_due(finished_before=harness.clock() + 1, limit=1_000)
        assert len(due) == 101
        await store.jobs.audited([job.id for job in due])
        await harness.advance(0)
        assert strays(redis_client, harness, stays_only=True) == []


# ------------------------------------------------------------------------------- what others have to finish


def leave_it(store: RedisStore) -> None:
    """The replica dies, as it were, before it does what its steps have left to be done."""
    store.effects.settle_groups = lambda: None


async def test_redis_groups_window_that_a_dead_replica_left_half_open(make, mock_clock):
    """The rest of a wide window is opened by any replica's next tick when the one that made the group is gone (GW-14)."""
    async with make(ROOMY) as harness:
        other = await harness.join()
        leave_it(harness.store)
        parent = await group(harness.store, 700, 600)
        released = [child.released for child in await all_children(other, parent)]
        assert 0 < sum(released) < 600
        await harness.kill(harness.store)
        await harness.advance(5)
        await agreed(other, parent.id)


async def test_redis_groups_stopped_children_that_nobody_sweeps_are_never_claimed(make, mock_clock):
    """Though no sweep comes by, a claim ends what it meets of a stopped group, 200 at a time, and gives out none (GW-14)."""
    async with make(ROOMY) as harness:
        store = harness.store
        parent = await group(store, 500, 500, GroupPolicy.FAIL_FAST)
        await harness.advance(0)
        leave_it(store)
        await fail(store, await claim_one(store))
        left = []
        for _ in range(3):
            assert not await store.jobs.claim(WIDE, 16)
            left.append((await present(store, parent.id)).counts.queued)
        assert left == [299, 99, 0]
        assert (await agreed(store, parent.id)).status is Status.FAILED


async def test_redis_groups_cancel_that_a_dead_replica_left(make, mock_clock):
    """Of a cancelled group what its replica had no time to end is ended by another, running ones too (GW-14)."""
    async with make(ROOMY) as harness:
        other = await harness.join()
        parent = await group(harness.store, 500, 500)
        await harness.advance(0)
        running = await other.jobs.claim(pool(300), 300)
        leave_it(harness.store)
        await harness.store.jobs.cancel(parent.id)
        assert (await present(other, parent.id)).status is Status.PROCESSING
        await harness.kill(harness.store)
        await harness.advance(5)
        assert (await agreed(other, parent.id)).status is Status.CANCELLED
        assert not await other.jobs.renew([])
        for claimed in running:
            assert await other.jobs.hand_back(claimed.job.id, claimed.token) is False


async def test_redis_groups_deleted_that_a_dead_replica_left(make, redis_client, mock_clock):
    """What is left of a deleted group is taken away by another replica; nobody is shown any of it meanwhile (GW-14)."""
    async with make(ROOMY) as harness:
        other = await harness.join()
        parent = await group(harness.store, 500, 500)
        await harness.advance(0)
        leave_it(harness.store)
        await harness.store.jobs.delete(parent.id)
        for child_id in (f"{parent.id}.0", f"{parent.id}.499"):
            assert await other.jobs.get(child_id) is None
        await harness.kill(harness.store)
        await harness.advance(5)
        while due := await other.jobs.audit_due(finished_before=harness.clock() + 1, limit=200):
            await other.jobs.audited([job.id for job in due])
        await harness.advance(0)
        assert strays(redis_client, harness, stays_only=True) == []


# ---------------------------------------------------------------------------------------- what is left over


async def test_redis_groups_leave_no_key(make, redis_client, mock_clock):
    """Once all groups are gone, made or not, ended in any way, retried, deleted, no key of them is left (AT-12, GW-14)."""
    policy = StorePolicy(result_ttl_ms=60_000)
    async with make(policy) as harness:
        store = harness.store
        await stage(store, 300, b"staged and forgotten")
        await store.jobs.unstage(await stage(store, 450, b"unstaged"))
        collects, fast, cancelled, deleted = [
            await group(store, 6, 2, how, idempotency_key=key)
            for key, how in (("a", "collect"), ("b", "fail_fast"), ("c", "collect"), ("d", "collect"))
        ]
        unnamed = new_job_id(harness.clock())
        (blob, _, _) = await bring(store, unnamed, b"1", b"2", b"3" * 100_000)
        assert not await store.jobs.stage(unnamed, [child_of(unnamed, 0, blob, harness.clock())])
        await store.jobs.create_group(parent_submission(unnamed, GroupTerms(1, 1)))
        for number in range(100):
            if not (claimed := await store.jobs.claim(pool(1), 1)):
                break
            await (fail if number % 3 == 2 else complete)(store, claimed[0])
            if number == 3:
                await store.jobs.cancel(cancelled.id)
                await store.jobs.delete(deleted.id)
            await harness.advance(0)
        for parent in (collects, fast, cancelled):
            assert (await agreed(store, parent.id)).status.terminal
        ids = [job.id for job in await store.jobs.audit_due(finished_before=2**52, limit=1000)]
        await store.jobs.audited(ids)
        retried = (await regroup(store, await present(store, collects.id))).job
        await harness.advance(61)
        while claimed := await claim_all(store):
            for each in claimed:
                await complete(store, each)
        await store.jobs.audited([retried.id, *(child.id for child in await all_children(store, retried))])
        await harness.advance(STAGING_MS / 1000 + 1)
        for _ in range(2):
            while (await store.jobs.sweep()).more:
                pass
            await harness.advance(61)
        assert (await store.jobs.counts()).stored_bytes == 0
        assert strays(redis_client, harness, stays_only=True) == []


async def test_redis_groups_records_stay_compact(make, redis_client, mock_clock):
    """The hashes of a parent, of its children and of the group itself keep their compact form (P11)."""
    async with make(ROOMY) as harness:
        store = harness.store
        parent = await group(store, 300, 250, GroupPolicy.FAIL_FAST, idempotency_key="k" * 255)
        await harness.advance(0)
        old = await claim_one(store)
        await fail(store, old)
        await harness.advance(0)
        for family in ("job", "group"):
            keys = list(redis_client.scan_iter(match=harness.key(f"{family}:*"), count=10_000))
            assert len(keys) == {"job": 251, "group": 1}[family]
            for key in keys:
                assert redis_client.object("encoding", key) in {b"ziplist", b"listpack"}
        assert (await agreed(store, parent.id)).status is Status.FAILED


# ------------------------------------------------------------------------------------------------ documents


async def test_redis_groups_documents_in_files(shared_redis, tmp_path):
    """Large documents of a group are files that go with it: unstaged, or deleted (AT-13, GW-14)."""
    place = Place(shared_redis.unix_url, f"files-{new_job_id(0)}", tmp_path)
    documents = [bytes([number]) * (INLINE_BYTES + 1) for number in range(3)]
    async with open_redis(place, StorePolicy(), replica="r-1", wall_clock=wall_clock) as store:
        (folder,) = tmp_path.iterdir()
        dropped = new_job_id(store.now())
        await bring(store, dropped, *documents)
        assert len(list(folder.iterdir())) == 3
        await store.jobs.unstage(dropped)
        parent_id = new_job_id(store.now())
        blobs = await bring(store, parent_id, *documents)
        children = [child_of(parent_id, index, blob, store.now()) for index, blob in enumerate(blobs[:2])]
        assert not await store.jobs.stage(parent_id, children)
        await store.jobs.create_group(parent_submission(parent_id, GroupTerms(2, 1)))
        for index in (0, 1):
            child = await present(store, f"{parent_id}.{index}")
            assert await read(store, child.document) == documents[index]
        await store.jobs.cancel(parent_id)
        await store.jobs.delete(parent_id)
        await store.jobs.audited([parent_id, f"{parent_id}.0"])
    assert list(folder.iterdir()) == []


async def test_redis_groups_many_documents_go_in_steps_of_their_own(make, redis_client, mock_clock):
    """Documents of more than 1 MiB together are brought in several steps, none of which holds the server for long."""
    async with make(ROOMY) as harness:
        store = harness.store
        parent_id = new_job_id(harness.clock())
        documents = [bytes([number]) * 60_000 for number in range(40)]
        with commands(redis_client) as counted:
            blobs = await bring(store, parent_id, *documents)
        assert counted["evalsha"] == 3
        assert [await read(store, blob) for blob in blobs] == documents


async def test_redis_groups_child_takes_over_its_document(make, redis_client, mock_clock):
    """A document that one child names needs no list of those that share it; with two it has one, until one is left."""
    async with make(ROOMY) as harness:
        store = harness.store
        parent_id = new_job_id(harness.clock())
        one, both = await bring(store, parent_id, b"one", b"both")
        children = [child_of(parent_id, i, blob, harness.clock()) for i, blob in enumerate((one, both, both))]
        assert not await store.jobs.stage(parent_id, children)
        sharers = list(redis_client.scan_iter(match=harness.key("sharers:*"), count=10_000))
        assert sharers == [harness.key(f"sharers:{both.id}").encode()]
        await store.jobs.unstage(parent_id)
        assert (await store.jobs.counts()).stored_bytes == 0
        assert strays(redis_client, harness, stays_only=True) == []
        await claim_nothing(store)
        assert (await create_group(store, 1, 1)).job.status is Status.QUEUED


async def test_redis_groups_deleted_one_is_counted_no_more(make, mock_clock):
    """A deleted group that waits for its events is in no figure but theirs, however large it is (GW-14)."""
    async with make(ROOMY) as harness:
        store = harness.store
        parent = await group(store, 500, 500)
        await harness.advance(0)
        await store.jobs.delete(parent.id)
        await harness.advance(0)
        counts = await store.jobs.counts()
        assert (sum(counts.by_status.values()), counts.backlogs, counts.depth, counts.audit_due) == (
            0,
            (),
            0,
            501,
        )
