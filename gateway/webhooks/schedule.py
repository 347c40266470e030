"""When a message is tried again: a pure function. Ten attempts over three days, as Standard Webhooks advises."""

from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 3600
PAUSES_S: Final = (
    *(5, 5 * _MINUTE, 30 * _MINUTE),
    *(2 * _HOUR, 5 * _HOUR, 10 * _HOUR, 14 * _HOUR, 20 * _HOUR, 24 * _HOUR),
)
"""After the first failed attempt, the second, and so on; after one more it is over."""
LONGEST_ASKED_S: Final = 24 * _HOUR
"""What a receiver asks for with Retry-After is cut to this."""
JITTER: Final = 0.1
"""A pause is up to this part longer, so that what failed together does not come again together."""


def pause_s(tries: int, asked_s: float | None, chance: float) -> float | None:
    """How long to wait for the next attempt, seconds; None: there is none.

    Args:
        tries: attempts that have failed, at least 1.
        asked_s: what the receiver asked for; never undercut.
        chance: 0 <= chance < 1, drawn anew each time.
    """
    if tries > len(PAUSES_S):
        return None
    asked = min(asked_s or 0.0, LONGEST_ASKED_S)
    return max(PAUSES_S[tries - 1], asked) * (1 + JITTER * chance)
