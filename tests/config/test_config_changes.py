"""What differs between two configurations, and what of it a running process cannot take over."""

from pathlib import Path

import pytest

from gateway.config import Config, parse_config
from gateway.config.changes import LIVE, changed_paths, needing_restart


def upstream(name: str, more: str = "", slots: int = 1) -> str:
    return (
        f"  - {{name: {name}, type: ocr-http, adapter: sync-http, class: on_prem, models: [{name}], submit_path: /ocr,"
        f' endpoints: [{{url: "http://a", slots: {slots}}}]{more}}}\n'
    )


def config(*upstreams: str, extra: str = "") -> Config:
    text = f"{extra}\nupstreams:\n{''.join(upstreams or [upstream('one')])}"
    return parse_config(text, Path("/"), {}).config


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (config(), config(), []),
        (config(), config(extra="jobs: {max_queued: 100000}"), []),  # the default, written out
        (config(), config(extra="jobs: {max_queued: 5, max_attempts: 4}"), ["jobs.max_queued", "jobs.max_attempts"]),
        (config(), config(upstream("one", slots=2)), ["upstreams.one.endpoints"]),
        (config(), config(upstream("two")), ["upstreams.one", "upstreams.two"]),
        (config(upstream("a"), upstream("b")), config(upstream("b"), upstream("a")), []),
        (config(), config(upstream("one", ", timeout_s: 3, health: {path: /h}")), ["upstreams.one.timeout_s", "upstreams.one.health"]),
        (config(extra="tenants: {a: {weight: 2}}"), config(extra="tenants: {a: {weight: 3}, b: {weight: 1}}"), ["tenants.a.weight", "tenants.b"]),
        (config(), config(extra="auth: {keys: [{sha256: " + "0" * 64 + ", tenant: a}]}"), ["auth.keys"]),
        (config(), config(extra="server: {bind: '127.0.0.1:1'}"), ["server.bind"]),
    ],
)  # fmt: skip
def test_config_changes_are_named(old, new, expected):
    """Each value that differs is named by its path, upstreams by their names; what is written out as its default is no
    change."""
    assert changed_paths(old, new) == expected


@pytest.mark.parametrize(
    "path",
    [
        "server.bind", "server.admin_bind", "coordination", "local.data_dir", "redis.url", "audit.sinks", "payloads.dir",
        "metrics.max_tenants", "jobs.visibility_timeout_s", "auth.admin_token_env", "server.max_body", "upstreamsx",
    ],
)  # fmt: skip
def test_config_changes_that_need_a_restart(path):
    """What is read once at start is refused by its path (page 10)."""
    [fault] = needing_restart([path, "tenants.a.weight"])
    assert (fault.path, "restart" in fault.message) == (path, True)


def test_config_changes_that_hold_at_once():
    """Upstreams, slots, tenants, keys and limits hold at once (page 10)."""
    paths = [
        "upstreams.one.endpoints",
        "upstreams",
        "tenants['a b'].weight",
        "auth.keys",
        "allow_external_upstreams",
    ]
    assert needing_restart([*LIVE, *paths]) == []


def test_config_changes_live_paths_exist():
    """Every path that is said to hold at once is one of the schema."""
    for path in LIVE:
        value: object = config()
        for name in path.split("."):
            value = getattr(value, name)
