"""What two values violate together. Each check is a generator of faults over a draft, listed in CHECKS.

A draft is what of a file could be read: a section or an upstream that holds a fault is None there, and the checks
that need it say nothing, so one mistake is not reported twice in other words.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from gateway.config.faults import Fault, item_path, key_path, near_miss
from gateway.config.schema import (
    Audit,
    Auth,
    Config,
    FileSink,
    HttpSink,
    Jobs,
    Redis,
    RedisStreamSink,
    Server,
    StdoutSink,
)
from gateway.config.upstreams import AnyUpstream, Upstream


class Draft(Struct, frozen=True, kw_only=True):
    """The sections that are looked at together."""

    server: Server | None
    auth: Auth | None
    jobs: Jobs | None
    audit: Audit | None
    upstreams: tuple[AnyUpstream | None, ...]
    """Each in its place in the file."""
    written: Mapping[str, object]
    """The document itself, for what must be written out."""

    def named_upstreams(self) -> Iterator[tuple[str, AnyUpstream]]:
        """Path and upstream of those without faults."""
        for index, upstream in enumerate(self.upstreams):
            if upstream is not None:
                yield item_path("upstreams", index), upstream


def public_bind(draft: Draft) -> Iterator[Fault]:
    """The tenant header is believed beyond loopback only when somebody wrote so."""
    if draft.server is None:
        return
    server, path = draft.server, "server.trusted_tenant_header"
    section = draft.written.get("server")
    is_written = isinstance(section, dict) and "trusted_tenant_header" in section
    if not server.bind.loopback and not is_written:
        yield Fault(
            path,
            f"missing; server.bind {server.bind} is reachable from other machines: expected true (a platform edge "
            "sets X-Tenant-Id) or false (auth.keys say who asks)",
        )
    if draft.auth is not None and not server.trusted_tenant_header and not draft.auth.keys:
        yield Fault(path, "false needs auth.keys: without a key nobody could ask; expected true, or keys")


def admin_bind(draft: Draft) -> Iterator[Fault]:
    """The admin side has an address of its own, and a token when others can reach it."""
    if draft.server is None:
        return
    bind = draft.server.admin_bind
    if bind.meets(draft.server.bind):
        yield Fault("server.admin_bind", f"{bind} is taken by server.bind; expected another port")
    if draft.auth is None or bind.loopback:
        return
    if draft.auth.admin_token_env is None and not any(key.admin for key in draft.auth.keys):
        yield Fault(
            "auth.admin_token_env",
            f"missing; server.admin_bind {bind} is reachable from other machines: expected the name of an environment "
            "variable with the token, or a key with admin: true",
        )


def keys(draft: Draft) -> Iterator[Fault]:
    """A key belongs to one tenant."""
    if draft.auth is not None:
        hashes = [
            (item_path("auth.keys", n) + ".sha256", key.sha256) for n, key in enumerate(draft.auth.keys)
        ]
        for path, _, first in _repeated(hashes):
            yield Fault(path, f"the same key stands at {first}; expected each key once")


def heartbeat(draft: Draft) -> Iterator[Fault]:
    """One renewal may be lost without losing the claim."""
    if draft.jobs is not None and 2 * draft.jobs.heartbeat_s > draft.jobs.visibility_timeout_s:
        limit = draft.jobs.visibility_timeout_s / 2
        yield Fault(
            "jobs.heartbeat_s",
            f"{draft.jobs.heartbeat_s:g} is more than half of jobs.visibility_timeout_s "
            f"{draft.jobs.visibility_timeout_s:g}; expected at most {limit:g}",
        )


def deadlines(draft: Draft) -> Iterator[Fault]:
    """A job whose process died at once must not look as if its attempt had outlived its deadline."""
    if draft.jobs is not None and draft.jobs.processing_timeout_s < draft.jobs.visibility_timeout_s:
        yield Fault(
            "jobs.processing_timeout_s",
            f"{draft.jobs.processing_timeout_s:g} is less than jobs.visibility_timeout_s "
            f"{draft.jobs.visibility_timeout_s:g}; expected at least that",
        )


def audit_sinks(draft: Draft) -> Iterator[Fault]:
    """Sinks go to different places, and no file is what another one is rotated to."""
    if draft.audit is None:
        return
    sinks = [(item_path("audit.sinks", n), sink) for n, sink in enumerate(draft.audit.sinks)]
    files = [(f"{path}.path", str(sink.path)) for path, sink in sinks if isinstance(sink, FileSink)]
    for path, name, first in _repeated(files):
        yield Fault(path, f"{name!r} is already written by {first}; expected another file")
    for path, name in files:
        base, _, number = name.rpartition(".")
        for other, other_name in files:
            if number.isdigit() and base == other_name:
                yield Fault(path, f"{name!r} is a closed segment of {other}; expected another file")
    # A URL may hold a secret, so it is not repeated.
    urls = [(f"{path}.url", sink.url) for path, sink in sinks if isinstance(sink, HttpSink)]
    for path, _, first in _repeated(urls):
        yield Fault(path, f"the same URL stands at {first}; expected each receiver once")
    for path, _, first in _repeated((path, "") for path, sink in sinks if isinstance(sink, StdoutSink)):
        yield Fault(path, f"standard output is already written by {first}; expected it once")
    streams = [(f"{path}.stream", sink.stream) for path, sink in sinks if isinstance(sink, RedisStreamSink)]
    for path, name, first in _repeated(streams):
        yield Fault(path, f"{name!r} is already written by {first}; expected another stream")
    for path, name in streams:
        yield from _stream_faults(draft, path, name)


def _stream_faults(draft: Draft, path: str, name: str) -> Iterator[Fault]:
    """A stream is none of the ledger's keys, and where it is must have been said."""
    section = draft.written.get("redis")
    redis = section if isinstance(section, dict) else {}
    prefix = redis.get("prefix", Redis().prefix)
    if name.startswith(f"{{{prefix}}}:"):
        yield Fault(path, f"{name!r} is among the keys of the ledger; expected another name")
    if draft.written.get("coordination") != "redis" and "url" not in redis:
        yield Fault(path, "the stream goes to redis.url, which is not written; expected redis.url")


def unique_names(draft: Draft) -> Iterator[Fault]:
    """A name is one upstream, a model is served by one upstream."""
    names = [(f"{path}.name", upstream.name) for path, upstream in draft.named_upstreams()]
    for path, name, first in _repeated(names):
        yield Fault(
            path, f"{name!r} is already the name of {first.removesuffix('.name')}; expected another one"
        )
    owners: dict[str, tuple[str, str]] = {}
    for path, upstream in draft.named_upstreams():
        for n, model in enumerate(upstream.models):
            owner, name = owners.setdefault(model, (path, upstream.name))
            if owner != path:
                both = f"{name!r} ({owner}) and {upstream.name!r}"
                yield Fault(
                    item_path(f"{path}.models", n),
                    f"model {model!r} is served by both {both}; expected one upstream",
                )


def upstreams(draft: Draft) -> Iterator[Fault]:
    """Each upstream is consistent in itself."""
    for path, upstream in draft.named_upstreams():
        yield from _slots(path, upstream)
        yield from _models(path, upstream)
        poll = upstream.poll
        if poll.min_interval_s > poll.max_interval_s:
            yield Fault(
                f"{path}.poll.min_interval_s",
                f"{poll.min_interval_s:g} is more than max_interval_s {poll.max_interval_s:g}; expected at most that",
            )


def _slots(path: str, upstream: Upstream) -> Iterator[Fault]:
    if upstream.reserved_interactive >= upstream.slots:
        yield Fault(
            f"{path}.reserved_interactive",
            f"{upstream.reserved_interactive} of {upstream.slots} slots leave none for batch work; "
            f"expected at most {upstream.slots - 1}",
        )
    urls = [
        (item_path(f"{path}.endpoints", n) + ".url", endpoint.url)
        for n, endpoint in enumerate(upstream.endpoints)
    ]
    for at, url, first in _repeated(urls):
        yield Fault(at, f"{url!r} stands at {first} already; expected each endpoint once")


def _models(path: str, upstream: Upstream) -> Iterator[Fault]:
    models = [(item_path(f"{path}.models", n), model) for n, model in enumerate(upstream.models)]
    for at, model, first in _repeated(models):
        yield Fault(at, f"{model!r} stands at {first} already; expected each model once")
    for model in upstream.model_map:
        if model not in upstream.models:
            hint = near_miss(model, upstream.models)
            yield Fault(key_path(f"{path}.model_map", model), f"no model of this upstream{hint}")


def _repeated(values: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """(path, value, path of the first one) of each value that was there before."""
    seen: dict[str, str] = {}
    for path, value in values:
        first = seen.setdefault(value, path)
        if first != path:
            yield path, value, first


CHECKS: Final[tuple[Callable[[Draft], Iterator[Fault]], ...]] = (
    public_bind,
    admin_bind,
    keys,
    heartbeat,
    deadlines,
    audit_sinks,
    unique_names,
    upstreams,
)


def advice(config: Config) -> Iterator[str]:
    """What is allowed but probably not meant, one sentence each."""
    yield from _audit_advice(config.audit)
    if config.auth.keys and config.server.trusted_tenant_header:
        yield (
            "server.trusted_tenant_header: true: a request without a key is believed its X-Tenant-Id, "
            "so something in front must set or remove that header"
        )
    if config.slots.on_store_loss == "share" and config.coordination == "local":
        yield "slots.on_store_loss: share: with coordination: local there is no store that could be lost"
    for n, upstream in enumerate(config.upstreams):
        path = item_path("upstreams", n)
        if upstream.external and not config.allow_external_upstreams:
            yield (
                f"{path}: {upstream.name!r} is external_dev and allow_external_upstreams is false: "
                "each use of it is refused"
            )
        if upstream.timeout_s is not None and upstream.timeout_s > config.jobs.processing_timeout_s:
            yield f"{path}.timeout_s: longer than jobs.processing_timeout_s, which ends the attempt first"
    yield from _tenant_advice(config)


def _tenant_advice(config: Config) -> Iterator[str]:
    known = {upstream.name for upstream in config.upstreams}
    models = {model for upstream in config.upstreams for model in upstream.models} | {"*"}
    for tenant in config.tenants:
        limits = config.limits_of(tenant)
        path = key_path("tenants", tenant)
        for model in limits.models:
            if model not in models:
                yield f"{path}.models: no upstream serves {model!r}{near_miss(model, models)}"
        for name in limits.exclusive:
            if name not in known:
                yield f"{path}.exclusive: no upstream is named {name!r}{near_miss(name, known)}"


def _audit_advice(audit: Audit) -> Iterator[str]:
    if not audit.sinks:
        yield "audit.sinks: empty: nothing is audited"
    for n, sink in enumerate(audit.sinks):
        if isinstance(sink, HttpSink) and sink.token_env and sink.url.lower().startswith("http:"):
            yield f"{item_path('audit.sinks', n)}.url: http: the token and the events go unencrypted"
