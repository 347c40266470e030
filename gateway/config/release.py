"""What this release cannot do yet: the configuration is one for all releases, so it is said by name."""

from collections.abc import Iterator

from gateway.config.faults import ConfigError, Fault, item_path
from gateway.config.schema import Config, RedisStreamSink


def require_built(config: Config) -> None:
    """Refuse what would not work.

    Raises:
        ConfigError: lists all of it.
    """
    if faults := tuple(_not_built(config)):
        raise ConfigError(faults)


def _not_built(config: Config) -> Iterator[Fault]:
    for n, sink in enumerate(config.audit.sinks):
        if isinstance(sink, RedisStreamSink):
            detail = "redis_stream is not in this release; expected file, http or stdout"
            yield Fault(item_path("audit.sinks", n), detail)


def without_effect(config: Config) -> Iterator[str]:
    """What is accepted and does nothing yet, one sentence each."""
    if config.slots.on_store_loss == "share":
        yield "slots.on_store_loss: synchronous calls are refused while the store is away; share is not in this release"
