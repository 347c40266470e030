"""The upstreams of jobs, over reloads: their targets, the dispatchers of these; and who tends all breakers."""

from collections.abc import Callable, Iterator

from gateway.clock import WallClock
from gateway.config import Config, Loaded
from gateway.health import Health, Watched, Watching
from gateway.manager.manager import Bounds, Manager
from gateway.manager.upstreams import Loading, Target, key_for, make_targets


class Fleet:
    """What follows the configuration in force.

    Args:
        targets: as of `open_targets`; the list is changed.
        manager: calls them.
        watching: tends their breakers.
        clock: the wall clock.
        calls: whether this replica runs jobs; one that does not still knows which endpoints are up.
        refusing: whether jobs of external upstreams that are not allowed are refused here.
    """

    def __init__(
        self,
        targets: list[Target],
        manager: Manager,
        watching: Watching,
        clock: WallClock,
        *,
        calls: bool,
        refusing: bool,
    ) -> None:
        self._targets = targets
        self._manager = manager
        self._watching = watching
        self._clock = clock
        self._calls = calls
        self._refusing = refusing

    def __repr__(self) -> str:
        return f"<Fleet of {len(self._targets)}>"

    def prepare(self, loaded: Loaded, health: Health) -> Callable[[], None]:
        """Open what a configuration needs that is not in force yet.

        Args:
            loaded: the configuration.
            health: of its upstreams.

        Returns:
            What puts it in force; it does not fail.

        Raises:
            OSError: certificates cannot be read.
        """
        loading = Loading(loaded.config, loaded.secrets, health)
        targets = make_targets(loading, self._clock, self._targets, refusing=self._refusing)

        def put_in_force() -> None:
            self._targets[:] = targets
            self._watching.change(watched(loaded, health))
            self._manager.reconfigure(targets if self._calls else (), bounds(loaded.config))

        return put_in_force


def watched(loaded: Loaded, health: Health) -> Iterator[Watched]:
    """Whose breakers are tended: nothing is sent where nothing may be."""
    for upstream in loaded.config.upstreams:
        if loaded.config.allow_external_upstreams or not upstream.external:
            yield Watched(upstream, health.of(upstream.name), key_for(upstream, loaded.secrets))


def bounds(config: Config) -> Bounds:
    """The bounds of this replica's work."""
    return Bounds(config.server.max_running, config.server.drain_timeout_s)
