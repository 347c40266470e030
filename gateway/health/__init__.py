"""Which endpoints may be used: a breaker for each, fed by calls and probes.

    breaker     the state machine, pure
    endpoints   all breakers, and what follows from them
    probes      the service that keeps their time and probes

An upstream is down when none of its endpoints' breakers is closed.
"""

from gateway.health.breaker import Breaker, State
from gateway.health.endpoints import Health, UpstreamHealth
from gateway.health.probes import Watched, Watching, watch_upstream

__all__ = ["Breaker", "Health", "State", "UpstreamHealth", "Watched", "Watching", "watch_upstream"]
