"""What differs between two configurations, and what of it a running process cannot take over."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct, structs

from gateway.config.faults import Fault, key_path
from gateway.config.kinds import Bind
from gateway.config.schema import Config
from gateway.config.upstreams import Upstream

LIVE: Final = (
    "server.admin_hosts", "server.max_body_bytes", "server.max_json_bytes", "server.drain_timeout_s",
    "server.max_running", "server.trusted_tenant_header", "server.default_tenant", "auth.keys",
    "allow_external_upstreams", "jobs.max_attempts", "webhooks.allowed_hosts", "tenants", "default_tenant_limits",
    "upstreams",
)  # fmt: skip
"""What is looked at anew whenever it is used. Everything else is read once, at start."""


def changed_paths(old: Config, new: Config) -> list[str]:
    """The paths whose values differ, in the order of the schema. Upstreams stand under their names."""
    return list(dict.fromkeys(_differences("", old, new)))


def needing_restart(paths: list[str]) -> list[Fault]:
    """A fault for each path that a reload cannot change."""
    return [
        Fault(path, "changing it needs a restart")
        for path in paths
        if not any(path == live or path.startswith((f"{live}.", f"{live}[")) for live in LIVE)
    ]


def _differences(path: str, old: object, new: object) -> Iterator[str]:
    if old == new and type(old) is type(new):
        return
    if path == "upstreams" and isinstance(old, tuple) and isinstance(new, tuple):
        yield from _differences(path, _by_name(old), _by_name(new))
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys((*old, *new)):
            yield from _member_differences(key_path(path, key), old, new, key)
    elif isinstance(old, Struct) and type(old) is type(new) and not isinstance(old, Bind):
        before, after = structs.asdict(old), structs.asdict(new)
        for field in structs.fields(old):
            deeper = key_path(path, field.encode_name)
            yield from _differences(deeper, before[field.name], after[field.name])
    else:
        yield path


def _member_differences(
    path: str, old: Mapping[str, object], new: Mapping[str, object], key: str
) -> Iterator[str]:
    if key in old and key in new:
        yield from _differences(path, old[key], new[key])
    else:
        yield path


def _by_name(upstreams: Iterable[Upstream]) -> Mapping[str, object]:
    return {upstream.name: upstream for upstream in upstreams}
