"""Which store a configuration asks for, and its bounds. The only place that knows that there is more than one."""

from contextlib import AbstractAsyncContextManager

from gateway.clock import wall_clock
from gateway.config import Config
from store.api import Coordination
from store.batching import Observer
from store.local import open_local
from store.policy import StorePolicy, Tenants


def open_coordination(
    config: Config, *, replica: str, observer: Observer
) -> AbstractAsyncContextManager[Coordination]:
    """The store of one replica, open for the length of the block.

    Args:
        config: picks it and gives its bounds.
        replica: the id of this process, new at every start.
        observer: keeps its figures.

    Raises:
        OSError: its folder cannot be used.
        StoreError: another process holds the folder, or the server cannot be used.
    """
    policy = store_policy(config)
    if config.coordination == "redis":
        from store.redis import Place, open_redis  # noqa: PLC0415  others never load the Redis client

        return open_redis(
            Place(config.redis.url, config.redis.prefix, config.payloads.dir),
            policy,
            replica=replica,
            wall_clock=wall_clock,
            observer=observer,
        )
    return open_local(
        config.local.data_dir,
        policy,
        replica=replica,
        clock=wall_clock,
        fsync=config.local.fsync,
        observer=observer,
    )


def store_policy(config: Config) -> StorePolicy:
    """The store's bounds out of the configuration."""
    jobs = config.jobs
    return StorePolicy(
        max_queued=jobs.max_queued,
        max_stored_bytes=config.max_stored_bytes,
        max_uploads=jobs.max_uploads,
        min_free_bytes=config.local.min_free_bytes,
        visibility_timeout_ms=_ms(jobs.visibility_timeout_s),
        share_on_loss=config.slots.on_store_loss == "share",
        processing_timeout_ms=_ms(jobs.processing_timeout_s),
        max_crashes=jobs.max_crashes,
        queue_timeout_ms=_ms(jobs.queue_timeout_s) if jobs.queue_timeout_s is not None else None,
        paused_ttl_ms=_ms(jobs.paused_ttl_s),
        result_ttl_ms=_ms(jobs.result_ttl_s),
        max_finished=jobs.max_finished,
        min_result_ms=_ms(jobs.min_result_s),
        tenants=tenants_of(config),
    )


def tenants_of(config: Config) -> Tenants:
    """The limits of every tenant."""
    return Tenants(
        default=config.default_tenant_limits,
        named={tenant: config.limits_of(tenant) for tenant in config.tenants},
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
