"""The contract suite over the Redis store."""

import pytest
from redis_harness import redis_maker

from store.testing import CASES


@pytest.mark.parametrize("name", CASES)
async def test_redis_store_holds(name, shared_redis, mock_clock):
    """Each case of the contract holds on Redis (AT, AX and GW numbers stand in its docstring)."""
    await CASES[name](redis_maker(shared_redis.unix_url, mock_clock))
