"""docs/scaling.md says what is: the tests, metrics and keys that it names exist, and its account of Redis is enough."""

import re
import signal
from collections import deque
from pathlib import Path

import msgspec
import pytest
from deployed import ROOT, SECRET, found
from gateway_process import running, submit, until_all_done, write_config
from redis_server import RedisServer, redis_server

from adapters.testing.scripts import answer
from adapters.testing.stub import open_stub_upstream
from gateway.audit.batches import NotTaken
from gateway.audit.bodies import Line
from gateway.audit.redis_sink import RedisSink
from gateway.clock import wall_clock
from gateway.config.schema import Config
from gateway.metrics import Metrics
from store.errors import UnfitStore
from store.policy import StorePolicy
from store.redis import Place, open_redis
from store.testing import CASES
from store.testing.shared_cases import SHARED_CASES

PAGE = (ROOT / "docs" / "scaling.md").read_text()
PAGES = [PAGE, *((ROOT / "docs" / name).read_text() for name in ("operations.md", "architecture.md"))]
STORE = ROOT / "store" / "redis"
HANDSHAKE = {"client|setname", "select"}
"""What redis-py sends by itself; AUTH is allowed to everybody."""


def names_of_tests(folder: Path) -> set[str]:
    return {
        name
        for path in folder.rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }


def test_scaling_page_names_tests_that_exist():
    """Each test and contract case that the page gives as a proof exists."""
    named = set(re.findall(r"`((?:test|shared|report)_\w+)`", PAGE))
    assert named
    assert named <= names_of_tests(ROOT / "tests") | set(CASES) | set(SHARED_CASES)


def test_scaling_page_names_metrics_that_exist():
    """Each metric that the pages name is one of the catalogue."""
    known = Metrics().exposition()[0].decode()
    named = {name for page in PAGES for name in re.findall(r"`(gateway_\w+)", page)}
    assert {name for name in named if f"# TYPE {name} " not in known} == set()


def test_scaling_page_names_keys_that_exist():
    """Each key of the configuration that the pages name is one of the schema."""
    sections = {field.name: field.type for field in msgspec.structs.fields(Config)}
    for section, key in re.findall(r"`(server|jobs|redis|payloads|auth)\.(\w+)`", "".join(PAGES[:2])):
        assert key in sections[section].__struct_fields__, f"{section}.{key}"


# ---------------------------------------------------------------------------------------------- account of Redis


def account() -> list[str]:
    """The rules that the page gives, for the prefix `sg`."""
    return found(r"\n    (user \S+ on .*)\n", PAGE).split()[2:]


def commands_of_scripts() -> set[str]:
    text = "".join(path.read_text() for path in (STORE / "lua").rglob("*.lua"))
    return {name.lower() for name in re.findall(r"(?:\bcall\(|\{)'([A-Z]+)'", text)}


def commands_of_code() -> set[str]:
    """Commands as tuples that begin with a word in capitals; what is asked of a sentinel is no business of the account."""
    text = "".join(path.read_text() for path in STORE.glob("*.py"))
    named = re.findall(r'\(\s*"([A-Z]{3,})"(?:, "([A-Z]+)")?', text)
    both = {f"{name}|{sub}".lower() if name == "SCRIPT" else name.lower() for name, sub in named}
    return both - {"sentinel", "auth"}


def test_scaling_page_lists_the_commands_that_are_used():
    """The account may run what the code and its scripts run, and nothing else."""
    allowed = {rule[1:] for rule in account() if rule.startswith("+")}
    assert allowed == commands_of_scripts() | commands_of_code() | HANDSHAKE


@pytest.fixture
def guarded(tmp_path):
    """A server with the page's account, and one of ours to look at it."""
    users = tmp_path / "users.acl"
    rules = " ".join(account()).replace(">PASSWORD", f">{SECRET}")
    users.write_text(f"user default off\nuser gateway {rules}\nuser looker on nopass +@all\n")
    with redis_server(aclfile=str(users)) as server:
        yield server


def url(server: RedisServer) -> str:
    return f"redis://gateway:{SECRET}@127.0.0.1:{server.port}/0"


async def test_scaling_page_account_is_enough(guarded, tmp_path):
    """A gateway with that account does all its work, and Redis refuses it nothing."""
    redis = f"coordination: redis\nredis: {{url: '{url(guarded)}', prefix: sg}}"
    async with open_stub_upstream(answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url, extra=redis)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            large = await submit(client, bytes(300_000), **{"Idempotency-Key": "one"})
            small = await submit(client, b"page", **{"X-Run-At": "2026-01-01T00:00:00Z"})
            children = [{"inline": "cGFnZQ=="}] * 3
            fanout = {"model": "stub", "max_parallel": 2, "children": children}
            group = (await client.post("/jobs", json={"fanout": fanout})).raise_for_status().json()
            ids = [large["job_id"], small["job_id"], group["job_id"]]
            for job in await until_all_done(client, ids):
                assert job["status"] == "completed"
            gateway.signal(signal.SIGTERM)
            assert await gateway.ended() == 0
    with guarded.client(username="looker", password="") as looker:
        assert looker.acl_log() == []


async def test_scaling_page_account_of_the_audit_stream(guarded):
    """With the rules that the page adds for a redis_stream sink, and not without them, the account writes the stream."""
    sink, lines = RedisSink(url(guarded), "sg:audit", 100), deque([Line("e1", b"{}", again=False)])
    with pytest.raises(NotTaken, match="NOPERM"):
        await sink.write(lines)
    more = found(r"the account also needs `([^`]+)`", PAGE).split()
    with guarded.client(username="looker", password="") as looker:
        looker.execute_command("ACL", "SETUSER", "gateway", *more)
    await sink.write(lines)
    assert not lines
    await sink.close()


async def test_scaling_page_account_is_bounded(guarded):
    """The account sees nothing of another prefix: a start there is refused in words."""
    elsewhere = open_redis(Place(url(guarded), "other"), StorePolicy(), replica="r-1", wall_clock=wall_clock)
    with pytest.raises(UnfitStore, match="refuses to show what is below 'other'"):
        async with elsewhere:
            raise AssertionError("it was opened")
