"""The ledger on Redis under random scripts: two replicas that take turns answer like the model store."""

from collections import defaultdict
from contextlib import asynccontextmanager

import pytest
import trio
from group_script import run_groups_alone, run_groups_beside
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_script import Side, run_script_beside
from shared_harness import NUMBERS, SharedRedisHarness
from test_store_stateful import GROUP_STEPS, KEPT, KEPT_GROUPS, STEPS, SUBMIT, step

from store.redis import RedisStore
from store.ulid import new_ulid

EXAMPLES = 12


class Turns(SharedRedisHarness):
    """Whoever asks for the store is given one replica after the other."""

    _turn = 0

    @property
    def store(self) -> RedisStore:
        self._turn += 1
        living = list(self._alive)
        return living[self._turn % len(living)]

    def living(self, replica: str) -> RedisStore | None:
        return next((store for store in self._alive if store.replica == replica), None)

    async def orphan(self) -> RedisStore:
        """All replicas end, others begin."""
        await self.kill_all()
        await self.boot()
        return await self.boot()


class TurnsSide(Side):
    """Each replica renews what it holds itself."""

    async def renew(self, held):
        by_replica = defaultdict(list)
        for each in held:
            by_replica[each.token.replica].append(each)
        lost = []
        for replica, claims in by_replica.items():
            lost += await (self.harness.living(replica) or self.harness.store).jobs.renew(claims)
        return sorted(lost)


def turns_maker(server, client):
    def maker_of(clock):
        @asynccontextmanager
        async def make(policy):
            async with trio.open_nursery() as nursery:
                prefix = f"h{new_ulid(0)}-{next(NUMBERS)}"
                harness = Turns(server.unix_url, prefix, policy, clock, nursery, client)
                await harness.boot()
                await harness.boot()
                try:
                    yield harness
                finally:
                    with trio.CancelScope(shield=True):
                        await harness.kill_all()

        return make

    return maker_of


def test_redis_stateful_same_answers(shared_redis, redis_client):
    """Whatever is done to both, the model store and two replicas on Redis answer alike (AT-1..AT-14 in combination)."""
    maker_of = turns_maker(shared_redis, redis_client)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=True,
        database=None,
    )
    @given(st.lists(STEPS, min_size=12, max_size=35))
    def play(script):
        run_script_beside(script, maker_of, TurnsSide)

    play()


@pytest.mark.parametrize("name", KEPT)
def test_redis_stateful_kept(name, shared_redis, redis_client):
    """A script that once told stores apart does so no more."""
    run_script_beside(KEPT[name], turns_maker(shared_redis, redis_client), TurnsSide)


GROUPS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    database=None,
)


def test_redis_stateful_groups_same_answers(shared_redis, redis_client):
    """Whatever is done to groups, the model store and two replicas on Redis answer alike (GW-14)."""
    maker_of = turns_maker(shared_redis, redis_client)

    @GROUPS
    @given(st.lists(st.one_of(GROUP_STEPS, SUBMIT), min_size=8, max_size=30))
    def play(script):
        run_groups_beside(script, maker_of, TurnsSide)

    play()


def test_redis_stateful_groups_agree(shared_redis, redis_client):
    """On two replicas, of which both may die: counts are those of the statuses, the window is never exceeded, and the
    parent ends exactly once, with its last child (GW-14)."""
    maker_of = turns_maker(shared_redis, redis_client)

    @GROUPS
    @given(st.lists(st.one_of(GROUP_STEPS, step("lapse")), min_size=8, max_size=30))
    def play(script):
        run_groups_alone(script, maker_of, TurnsSide)

    play()


@pytest.mark.parametrize("name", KEPT_GROUPS)
def test_redis_stateful_kept_groups(name, shared_redis, redis_client):
    """A script of groups that once told stores apart does so no more."""
    run_groups_beside(KEPT_GROUPS[name], turns_maker(shared_redis, redis_client), TurnsSide)
