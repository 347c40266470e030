"""What this release accepts and does nothing with yet: the configuration is one for all releases, so it is said."""

from collections.abc import Iterator

from gateway.config.schema import Config


def without_effect(config: Config) -> Iterator[str]:
    """What is accepted and does nothing yet, one sentence each."""
    if config.slots.on_store_loss == "share":
        yield "slots.on_store_loss: synchronous calls are refused while the store is away; share is not in this release"
