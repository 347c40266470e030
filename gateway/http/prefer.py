"""The `Prefer` header (RFC 7240): a list of preferences, of which the job API knows two.

`respond-async` is what the API does anyway; `wait=N` asks for an answer once the job has finished, at most N
seconds from now. Others are ignored, as the RFC demands, and of a repeated one the first counts.
"""

from typing import Final

from msgspec import Struct

LONGEST_WAIT_S: Final = 60


class Preferences(Struct, frozen=True):
    """What a client prefers."""

    respond_async: bool = False
    wait_s: int | None = None
    """Cut to LONGEST_WAIT_S."""

    @property
    def applied(self) -> str | None:
        """The `Preference-Applied` header; None when nothing was preferred."""
        parts = ["respond-async"] if self.respond_async else []
        if self.wait_s is not None:
            parts.append(f"wait={self.wait_s}")
        return ", ".join(parts) or None


def parse_prefer(header: str | None) -> Preferences:
    """Read the header; what is malformed in it counts as not said."""
    said: dict[str, str] = {}
    for item in (header or "").split(","):
        name, _, value = item.partition(";")[0].partition("=")
        said.setdefault(name.strip().lower(), value.strip().strip('"'))
    return Preferences(respond_async="respond-async" in said, wait_s=_seconds(said.get("wait")))


def _seconds(value: str | None) -> int | None:
    if value is None or not (value.isascii() and value.isdigit()):
        return None
    # Longer numbers than the bound has digits are cut without being read: they may be of any length.
    return LONGEST_WAIT_S if len(value.lstrip("0")) > 2 else min(int(value), LONGEST_WAIT_S)
