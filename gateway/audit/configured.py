"""The audit stream that a configuration asks for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from gateway.audit.bodies import Bodies, BodyPolicy
from gateway.audit.delivery import Delivery
from gateway.audit.emitter import GATHER_S, AuditEmitter
from gateway.audit.event import Origin
from gateway.audit.file_sink import FileSink
from gateway.audit.redact import parse_pointer
from gateway.audit.sinks import Sink, StdoutSink
from gateway.audit.spool import open_spool
from gateway.config import Loaded, schema
from gateway.metrics import Metrics
from gateway.outage import Outage
from store.api import Coordination

STDOUT: Final = 1


@asynccontextmanager
async def open_emitter(
    loaded: Loaded, origin: Origin, store: Coordination, metrics: Metrics, outage: Outage
) -> AsyncIterator[AuditEmitter]:
    """Write events for the length of the block.

    Raises:
        OSError: a sink or the spool cannot be opened.
    """
    audit = loaded.config.audit
    async with open_spool(audit.spool_dir, audit.spool_max_bytes) as spool:
        delivery = Delivery(make_sinks(loaded), spool, metrics)
        bodies = Bodies(store.payloads, body_policy(audit))
        emitter = AuditEmitter(origin, store.jobs, bodies, delivery, outage)
        async with emitter.running(GATHER_S):
            yield emitter


def body_policy(audit: schema.Audit) -> BodyPolicy:
    """What is quoted of bodies."""
    return BodyPolicy(
        cap_bytes=audit.body_cap_bytes,
        request="request" in audit.capture,
        response="response" in audit.capture,
        redact=tuple(parse_pointer(pointer) for pointer in audit.redact),
    )


def make_sinks(loaded: Loaded) -> list[Sink]:
    """The sinks in their order, not yet open."""
    chain_key = loaded.secrets.chain_key
    sinks: list[Sink] = []
    for n, sink in enumerate(loaded.config.audit.sinks):
        match sink:
            case schema.FileSink(path=path, max_bytes=max_bytes, keep=keep):
                key = None if chain_key is None else chain_key.encode()
                sinks.append(FileSink(path, max_bytes=max_bytes, keep=keep, chain_key=key))
            case schema.HttpSink(url=url):
                from gateway.audit.http_sink import HttpSink  # noqa: PLC0415  others never load the HTTP client

                sinks.append(HttpSink(url, loaded.secrets.sink_token(n)))
            case schema.RedisStreamSink(stream=stream, maxlen=maxlen):
                from gateway.audit.redis_sink import RedisSink  # noqa: PLC0415  others never load the Redis client

                sinks.append(RedisSink(loaded.config.redis.url, stream, maxlen))
            case schema.StdoutSink():
                sinks.append(StdoutSink(STDOUT))
    return sinks
