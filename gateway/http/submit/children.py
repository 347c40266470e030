"""What is asked of a group and of each of its children, whatever body it came in.

A fault of a child does not end the reading: all are collected, each with its place, so that one refusal names every
bad child.
"""

from typing import Final

from msgspec import Raw, Struct

from gateway.http.submit.options import Options
from gateway.problems import ApiError, FieldError
from store.job import Blob, GroupPolicy

NO_OPTIONS: Final = Options()


class Child(Struct, frozen=True, kw_only=True):
    """One child as it was asked for. Its document is one of: `input`, `inline`, `reference`, `brought`."""

    where: str
    """Its place in the request, as in `FieldError.pointer`."""
    input: Raw | None = None
    """The JSON that the upstream receives, as it stood in the body."""
    inline: Raw | None = None
    """A document in base64, as the JSON string that stood in the body."""
    reference: str | None = None
    """A document of the tenant that is stored already, `sha256:<hex>` or the id of a job."""
    brought: Blob | None = None
    """A document that came as a file; in the store by now."""
    content_type: str | None = None
    doc_hash: str | None = None
    pages: int | None = None
    options: Options = NO_OPTIONS
    """The child's own `model`, `params` and `metadata`."""


class GroupAsk(Struct, frozen=True, kw_only=True):
    """A group as it was asked for."""

    children: list[Child]
    max_parallel: int
    policy: GroupPolicy
    faults: "Faults"
    """What was wrong with it so far."""


class Faults:
    """Collects what is wrong with a request, place by place."""

    def __init__(self) -> None:
        self._found: list[FieldError] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def __repr__(self) -> str:
        return f"<Faults {len(self._found)}>"

    def add(self, where: str, detail: str) -> None:
        """One more."""
        self._found.append(FieldError(where, detail))

    def take(self, error: ApiError, where: str) -> None:
        """The faults that a refusal names, or the refusal itself as that of a place."""
        self._found += error.errors or [FieldError(where, error.detail)]

    def refusal(self, code: str = "INVALID_REQUEST") -> ApiError:
        """All of them as one refusal; there must be one."""
        first, *others = self._found
        more = f"; and {len(others)} more" if others else ""
        return ApiError(code, f"{first.pointer}: {first.detail}{more}", errors=self._found)
