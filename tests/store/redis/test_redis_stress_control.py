"""The stress case on Redis finds broken stores: the control of AT-17 where real threads and a real server answer."""

import re
from contextlib import asynccontextmanager

import pytest
from redis_harness import redis_maker
from test_store_stress_control import BREAKAGES, NEVER_ENDS, SpoiledHarness, leaves

from store.testing.contract_stress import case_everybody_at_once

WRONG = sorted(
    name
    for name, (_, verdict) in BREAKAGES.items()
    if verdict != NEVER_ENDS and name != "admits in two steps"
)
"""Those that say something wrong; the others need time that passes by itself, or the model."""


@pytest.mark.parametrize("breakage", WRONG)
async def test_redis_stress_control_finds(breakage: str, shared_redis, mock_clock) -> None:
    """The stress case fails on a Redis store that is deliberately broken in this way, and says how (AT-17)."""
    spoil, verdict = BREAKAGES[breakage]

    @asynccontextmanager
    async def make(policy):
        async with redis_maker(shared_redis.unix_url, mock_clock)(policy) as harness:
            yield SpoiledHarness(harness, spoil(harness.store))

    found: list[str] = []
    try:
        await case_everybody_at_once(make)
    except* AssertionError as group:
        found += [str(error) for error in leaves(group)]
    assert any(re.search(verdict, said) for said in found), found
