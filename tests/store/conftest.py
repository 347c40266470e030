"""What tests of stores share, also those in the folders below."""

from collections.abc import Iterator

import pytest
import redis
from redis_server import RedisServer


@pytest.fixture
def redis_client(shared_redis: RedisServer) -> Iterator[redis.Redis]:
    """Looks at the server of all tests from the side."""
    with shared_redis.client() as client:
        yield client
