"""What the manager needs of the configured upstreams: their capacities, their adapters, their deadlines."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio
from msgspec import Struct, structs

from adapters.api_key import ApiKey
from adapters.azure_di import AzureDi, AzureDiOptions, PollOptions
from adapters.base import Adapter
from adapters.classify import Classify, ClassifyOptions
from adapters.http import HttpClient, verifying_context
from adapters.llm import Llm, LlmOptions
from adapters.outcome import ErrorEnvelope
from adapters.sync_http import SyncHttp, SyncHttpOptions
from gateway.clock import WallClock
from gateway.config import Config, Secrets
from gateway.config.upstreams import LlmUpstream, Upstream
from gateway.health import Health, UpstreamHealth
from gateway.registry import is_job_upstream

CONNECT_TIMEOUT_S: Final = 5.0


def _nothing() -> None:
    """Nothing is open."""


class Target(Struct, frozen=True):
    """One upstream, ready to be called."""

    upstream: Upstream
    health: UpstreamHealth
    """Gives the capacities of each claim, and hears how calls went."""
    adapter: Adapter
    key: ApiKey | None
    timeout_s: float
    """Deadline of one attempt: the upstream's own or the job's processing timeout, whichever is shorter."""
    allowed: bool = True
    """False: its jobs are claimed to be refused, for it is external and external upstreams are not allowed."""
    close: Callable[[], None] = _nothing
    """Closes its connections, once nobody calls it any more; a second time it does nothing."""


@asynccontextmanager
async def open_targets(
    config: Config, secrets: Secrets, clock: WallClock, health: Health, *, refusing: bool = False
) -> AsyncIterator[list[Target]]:
    """The upstreams that jobs go to, with connections that are closed at the end of the block.

    The list is the caller's to change (`make_targets`); what stands in it at the end is closed.

    Args:
        config: in force.
        secrets: their keys.
        clock: the wall clock.
        health: of all upstreams.
        refusing: whether jobs of external upstreams that are not allowed are refused here; False: they wait.
    """
    targets = make_targets(Loading(config, secrets, health), clock, refusing=refusing)
    try:
        yield targets
    finally:
        for target in targets:
            target.close()
    await trio.lowlevel.checkpoint()


class Loading(Struct, frozen=True):
    """What targets are made of."""

    config: Config
    secrets: Secrets
    health: Health


def make_targets(
    loading: Loading, clock: WallClock, before: Sequence[Target] = (), *, refusing: bool
) -> list[Target]:
    """The targets of a configuration.

    Args:
        loading: the configuration, and what goes with it.
        clock: the wall clock.
        before: targets of an earlier configuration; those that would come out the same are taken as they are.
        refusing: as of `open_targets`.
    """
    known = {target.upstream.name: target for target in before}
    targets = []
    for upstream in loading.config.upstreams:
        allowed = loading.config.allow_external_upstreams or not upstream.external
        if not (is_job_upstream(upstream) and (allowed or refusing)):
            continue
        old, timeout_s = known.get(upstream.name), attempt_timeout_s(loading.config, upstream)
        if old is not None and (old.upstream, old.timeout_s, old.allowed) == (upstream, timeout_s, allowed):
            targets.append(old)
            continue
        client = HttpClient(upstream.slots, CONNECT_TIMEOUT_S, clock, verifying_context())
        key = key_for(upstream, loading.secrets)
        targets.append(
            Target(
                upstream=upstream,
                health=loading.health.of(upstream.name),
                adapter=_adapter(upstream, client, key, clock),
                key=key,
                timeout_s=timeout_s,
                allowed=allowed,
                close=client.close,
            )
        )
    return targets


def attempt_timeout_s(config: Config, upstream: Upstream) -> float:
    """Deadline of one call: the upstream's own or the job's processing timeout, whichever is shorter."""
    processing_s = config.jobs.processing_timeout_s
    return min(upstream.timeout_s or processing_s, processing_s)


def key_for(upstream: Upstream, secrets: Secrets) -> ApiKey | None:
    """The gateway's own key for an upstream; None when it needs none."""
    value = secrets.api_key(upstream.name)
    return ApiKey(upstream.api_key_header, value) if value is not None else None


def _adapter(upstream: Upstream, client: HttpClient, key: ApiKey | None, clock: WallClock) -> Adapter:
    if isinstance(upstream, LlmUpstream):
        return Llm(LlmOptions(max_response_bytes=upstream.max_response_bytes), client, key)
    if upstream.adapter == "classify":
        return Classify(_classify_options(upstream), client, key)
    if upstream.adapter == "azure-di":
        return AzureDi(_azure_options(upstream), client, key, clock)
    return SyncHttp(_sync_http_options(upstream), client, key)


def _classify_options(upstream: Upstream) -> ClassifyOptions:
    return ClassifyOptions(
        submit_path=upstream.submit_path or "/", max_response_bytes=upstream.max_response_bytes
    )


def _azure_options(upstream: Upstream) -> AzureDiOptions:
    return AzureDiOptions(
        submit_path=upstream.submit_path or "/",
        api_version=upstream.api_version,
        poll=PollOptions(**structs.asdict(upstream.poll)),
        max_response_bytes=upstream.max_response_bytes,
    )


def _sync_http_options(upstream: Upstream) -> SyncHttpOptions:
    envelope = upstream.error_envelope
    return SyncHttpOptions(
        submit_path=upstream.submit_path or "/",
        forward=upstream.forward,
        file_field=upstream.file_field,
        max_response_bytes=upstream.max_response_bytes,
        error_envelope=ErrorEnvelope(
            code_path=envelope.code_path, ok=envelope.ok, message_path=envelope.message_path
        )
        if envelope is not None
        else None,
    )
