"""Which keys there are: each is one of the table in `store.redis.keys`, ends when the table says so, and stays compact."""

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from ledger_script import POLICY, UPSTREAMS, Play, Side
from shared_harness import SharedRedisHarness, shared_redis_maker
from test_redis_stateful import TurnsSide, turns_maker
from test_store_stateful import STEPS
from trio.testing import MockClock

from store.errors import Refused
from store.job import MOVES, PriorityClass, Status
from store.policy import EndpointSlots, StorePolicy, TenantLimits, UpstreamSlots
from store.redis import keys, records
from store.redis.scripts import names, script
from store.testing.making import (
    again,
    calling,
    claim_nothing,
    claim_one,
    complete,
    crowd,
    drain_claims,
    failed,
    limits,
    pool,
    present,
    submit,
)
from store.testing.shared_harness import Seat
from store.values import Renewal, Report

EXAMPLES = 6
LONGEST = 64
"""Bytes of a value above which Redis gives up the compact form of a hash."""


FEW = {"replaced", "expired, left", "claimed, expired", "when passed", "served a job"}
"""Ends of keys of which there are as many as upstreams, tenants or replicas, and priority numbers."""


@dataclass(frozen=True)
class Family:
    """One row of the table."""

    kind: str
    ends: str

    @property
    def stays(self) -> bool:
        """Whether keys of it are there though no job is: few, whatever has happened."""
        return self.ends.startswith("never") or self.ends in FEW


@cache
def families() -> dict[str, Family]:
    """The table of `store.redis.keys` by the first word of a key."""
    found = {}
    for row in re.findall(r"^\| (`.*) \|$", keys.__doc__ or "", re.MULTILINE):
        columns = [column.strip() for column in row.split(" | ")]
        named = re.findall(r"`([^`]+)`", columns[0])
        kinds = columns[1].split(", ")
        for number, name in enumerate(named):
            kind = kinds[min(number, len(kinds) - 1)]
            found[name.partition(":")[0]] = Family(kind, columns[-1])
    for jobs, calls in zip(
        ("lane", "act", "heads", "pass", "ahead"),
        ("waiters", "wact", "wheads", "wpass", "wahead"),
        strict=True,
    ):
        found[calls] = found[jobs]
    return found


def test_redis_census_reads_the_table():
    """The table is read whole: every row with a name, a type and an end."""
    table = families()
    assert {"meta", "job", "slots", "waiters", "parked", "tomb", "unlisted", "wake"} <= table.keys()
    assert {family.kind for family in table.values()} == {"hash", "string", "list", "set", "zset", "stream"}
    assert table["tomb"].kind == "hash"
    assert table["tombs"].kind == "zset"


def strays(client, harness: SharedRedisHarness, *, stays_only: bool) -> list[str]:
    """Keys that should not be there, or not with that type; a key that ends by itself may stay."""
    table = families()
    found = []
    raws = list(client.scan_iter(match=harness.key("*"), count=10_000))
    with client.pipeline(transaction=False) as looks:
        for raw in raws:
            looks.type(raw).pttl(raw)
        told = looks.execute()
    for raw, kind, ttl in zip(raws, told[::2], told[1::2], strict=True):
        name = raw.decode().removeprefix(harness.key(""))
        family = table.get(name.partition(":")[0])
        if family is None or family.kind != kind.decode():
            found.append(f"{name} is a {kind.decode()}")
        elif stays_only and not family.stays and ttl < 0:
            found.append(f"{name} ({kind.decode()}) stays")
        elif stays_only and name.startswith("pass:"):
            found += [f"{name} has {field.decode()}" for field in client.hkeys(raw) if b":" in field]
    return found


class CensusPlay(Play):
    """Instead of reading all, looks at the keys; and ends all there is."""

    def __init__(self, side: Side, client) -> None:
        super().__init__([side, side])
        self._side = side
        self._client = client

    async def both(self, action, step):
        with suppress(Refused):
            await action(self._side)

    async def check(self, step) -> None:
        assert strays(self._client, self._side.harness, stays_only=False) == []

    async def advance(self, _step, seconds) -> None:
        await self._side.harness.advance(seconds)

    async def orphan(self, step) -> None:
        harness = self._side.harness
        await harness.orphan()
        await harness.advance(POLICY.visibility_timeout_ms / 1000)
        await self._side.jobs.reclaim()

    async def end_all(self) -> None:
        """Every job ends, its event is taken, and its time and that of its tombstone go by."""
        harness, jobs = self._side.harness, self._side.jobs
        await harness.advance(3600)
        while (await jobs.reclaim()).more:
            pass
        for upstream in UPSTREAMS:
            while claims := await jobs.claim(pool(9, name=upstream), 9):
                for claimed in claims:
                    await complete(harness.store, claimed)
        assert (await jobs.counts()).depth == 0
        await jobs.audited(self.ids)
        for _ in range(2):
            await harness.advance(POLICY.result_ttl_ms / 1000 + 1)
            await self._side.jobs.sweep()


def test_redis_census_after_a_history(shared_redis, redis_client):
    """Whatever has happened, once all jobs are gone no key is left but those that the table keeps, each of its type."""

    async def play(script, clock) -> None:
        async with turns_maker(shared_redis, redis_client)(clock)(POLICY) as harness:
            acts = CensusPlay(TurnsSide(harness), redis_client)
            await acts.run(script)
            await acts.end_all()
            assert strays(redis_client, harness, stays_only=True) == []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
    )
    @given(st.lists(STEPS, min_size=20, max_size=40))
    def run(script) -> None:
        clock = MockClock()
        trio.run(play, script, clock, clock=clock)

    run()


async def test_redis_census_passes_end_when_passed(shared_redis, redis_client, mock_clock):
    """What is kept of a lane that ran ahead is gone once the others have come as far (AX-3)."""
    async with shared_redis_maker(shared_redis.unix_url, redis_client, mock_clock)(StorePolicy()) as harness:
        store = harness.store
        for tenant in "abbbb":
            await submit(store, tenant=tenant)
        kept = [harness.key("ahead:ocr:b:50").encode()]
        await complete(store, await claim_one(store))
        assert list(redis_client.scan_iter(match=harness.key("ahead:*"), count=10_000)) == kept
        await drain_claims(store)
        await submit(store, tenant="c")
        await drain_claims(store)
        await submit(store, tenant="c")
        await drain_claims(store)
        left = redis_client.zrange(kept[0], 0, -1)
        assert b"a" not in left


async def test_redis_census_parked_lane_that_empties_leaves_nothing(shared_redis, redis_client, mock_clock):
    """When the last job or caller of a parked lane goes away, nothing says that its tenant has parked lanes."""
    policy = StorePolicy(tenants=limits(acme=TenantLimits(max_processing=1)))
    async with shared_redis_maker(shared_redis.unix_url, redis_client, mock_clock)(policy) as harness:
        store = harness.store
        await submit(store)
        await claim_one(store, pool(9))
        waits = await submit(store)
        async with calling(harness) as callers:
            await claim_nothing(store, pool(9))
            caller = await callers.call(pool(9))
            assert redis_client.smembers(harness.key("parked:acme")) == {b"j:ocr:b", b"w:ocr:b"}
            await store.jobs.cancel(waits.id)
            assert redis_client.smembers(harness.key("parked:acme")) == {b"w:ocr:b"}
            caller.scope.cancel()
            await caller.gone.wait()
            await harness.advance(0)
        assert not list(redis_client.scan_iter(match=harness.key("parked*"), count=10_000))


WORST = {
    "tenant": "t" * 64,
    "upstream": "u" * 64,
    "priority": 100,
    "idempotency_key": "k" * 255,
    "result_ttl_s": 400 * 86_400.0,
}
"""As long as the configuration lets them be."""
YEAR_S = 365 * 86_400
STAGE = "ü" * 200


async def test_redis_census_records_stay_compact(shared_redis, redis_client, mock_clock):
    """The hash of a job has its compact form in every state, with the longest names and numbers of years (P11)."""

    def look(when: str) -> None:
        for raw in redis_client.scan_iter(match=harness.key("job:*"), count=10_000):
            long = {name: value for name, value in redis_client.hgetall(raw).items() if len(value) > LONGEST}
            assert not long, when
            assert redis_client.object("encoding", raw) in {b"ziplist", b"listpack"}, when

    policy = StorePolicy(visibility_timeout_ms=60_000, result_ttl_ms=400 * 86_400_000, max_crashes=100)
    upstream = UpstreamSlots("u" * 64, (EndpointSlots("http://" + "e" * 300, 9),))
    async with shared_redis_maker(shared_redis.unix_url, redis_client, mock_clock)(policy) as harness:
        redis_client.hset(harness.key("meta"), "seq", 2**40)
        store = harness.store
        job = await submit(store, run_at=harness.clock() + 1000 * YEAR_S, **WORST)
        look("delayed")
        await harness.advance(YEAR_S)
        await harness.advance(YEAR_S)
        for _ in range(130):
            claimed = await claim_one(store, upstream)
            await store.jobs.hand_back(job.id, claimed.token)
        claimed = await claim_one(store, upstream)
        assert await store.jobs.report(job.id, claimed.token, Report(STAGE, 1 / 3))
        assert await store.jobs.save_state(job.id, claimed.token, b"s" * 2048)
        look("processing")
        await harness.advance(YEAR_S)
        assert not await store.jobs.renew([Renewal(job.id, claimed.token, Report(STAGE, 2 / 3))])
        look("renewed")
        assert await store.jobs.requeue(job.id, claimed.token, again(1000 * 3600, counted=False))
        look("delayed again")
        await harness.advance(YEAR_S)
        claimed = await claim_one(store, upstream)
        await harness.advance(YEAR_S)
        await complete(store, claimed, b"x" * 100_000)
        look("completed")
        await submit(store, **WORST | {"idempotency_key": None})
        assert await store.jobs.finish(*token_of(await claim_one(store, upstream)), failed())
        look("failed")


def token_of(claimed) -> tuple:
    return claimed.job.id, claimed.token


async def test_redis_census_a_long_stage_is_cut(shared_redis, redis_client, mock_clock):
    """A stage of more than 64 bytes is kept as far as whole characters fit."""
    async with shared_redis_maker(shared_redis.unix_url, redis_client, mock_clock)(StorePolicy()) as harness:
        job = await submit(harness.store)
        claimed = await claim_one(harness.store)
        assert await harness.store.jobs.report(job.id, claimed.token, Report("x" + STAGE, 0.1))
        assert (await present(harness.store, job.id)).stage == "x" + "ü" * 31
        assert not await harness.store.jobs.renew([Renewal(job.id, claimed.token, Report(STAGE + "x", 0.2))])
        assert (await present(harness.store, job.id)).stage == "ü" * 32


async def test_redis_census_all_keys_have_the_tag(shared_redis, redis_client, mock_clock):
    """Every key that any step makes lies in the slot of its prefix's tag: one node has them all."""
    before = set(redis_client.scan_iter(count=10_000))
    async with shared_redis_maker(shared_redis.unix_url, redis_client, mock_clock)(StorePolicy()) as harness:
        seat = Seat(harness, harness.store)
        await harness.join()
        await crowd(harness.store, 3)
        async with calling(seat) as callers:
            for _ in range(5):
                await callers.call(pool(2), PriorityClass.BATCH)
            claimed = await claim_one(harness.store, pool(9))
            await complete(harness.store, claimed, b"x" * 300_000)
            new = set(redis_client.scan_iter(count=10_000)) - before
    assert len(new) > 20
    assert {raw.partition(b":")[0] for raw in new} == {f"{{{harness.prefix}}}".encode()}


def test_redis_census_scripts_have_one_key():
    """Every script is given the meta key alone, and builds the others from its tag."""
    for name in names():
        source = script(name).source
        assert re.search(r"^-- KEYS: +\[1\] meta$", source, re.MULTILINE), name
        assert not re.search(r"KEYS\[[^1]", source), name


def lua_table(source: str, name: str) -> str:
    """What stands between the outer braces of a table in Lua."""
    found = re.search(rf"^local {name} = \{{(.*?)\n?\}}$", source, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[1]


def test_redis_census_moves_are_those_of_the_job():
    """The legal moves in Lua are those of `store.job`, status by status."""
    source = script("report").source
    rows = re.findall(r"(\w) = '(\w*)'", lua_table(source, "MOVES"))
    moves = {
        records.STATUSES[row[0].encode()]: {records.STATUSES[to.encode()] for to in row[1]} for row in rows
    }
    assert moves == MOVES
    terminal = re.findall(r"(\w) = true", lua_table(source, "TERMINAL"))
    assert {records.STATUSES[letter.encode()] for letter in terminal} == {s for s in Status if s.terminal}


LETTERS = {
    "pr": "priority",
    "sq": "seq",
    "cg": "change",
    "vs": "version",
    "pg": "progress",
    "dl": "delayed",
    "at": "attempt",
    "cr": "crashes",
    "fe": "fence",
    "qm": "queue_ms",
    "pm": "processing_ms",
    "um": "upstream_ms",
    "ad": "audit_due",
    "wf": "waiting_for",
    "av": "avoid_endpoint",
    "de": "deleted",
    "ca": "created_at",
    "ua": "updated_at",
    "qa": "queued_at",
    "da": "due_at",
    "ra": "run_at",
    "hd": "held_at",
    "sa": "started_at",
    "ce": "claim_expires_at",
    "fa": "finished_at",
    "xa": "expires_at",
    "bs": "busy_since",
}


def test_redis_census_numbers_have_one_order():
    """The lists of numbers in a record are read in the order in which they are written."""
    source = script("report").source
    lists = [re.findall(r"'(\w\w)'", row) for row in re.findall(r"\{(.*?)\}", lua_table(source, "NUMBERS"))]
    read = (records.COUNTS, records.INSTANTS, records.RUNNING)
    for written, names_read in zip(lists, read, strict=True):
        assert [LETTERS.get(letters) for letters in written[: len(names_read)]] == list(names_read)
        assert not any(letters in LETTERS for letters in written[len(names_read) :])
    places = {letters: place for place, written in enumerate(lists, 1) for letters in written}
    assert places == {
        letters: int(place) for letters, place in re.findall(r"(\w\w) = (\d)", lua_table(source, "PACK_OF"))
    }
