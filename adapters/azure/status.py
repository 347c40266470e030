"""What an operation's body says: the status, how far it is, the result untouched, the error.

Statuses compare without case. The service has notStarted, running, succeeded, failed and canceled; what is none of the
ends counts as running, since a new word of a newer version must not end a job that is paid for.
"""

from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from adapters.outcome import BYTE_ORDER_MARK


class Phase(StrEnum):
    """What is to be done about an operation."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


ENDS: Final = {
    "succeeded": Phase.SUCCEEDED,
    "failed": Phase.FAILED,
    "canceled": Phase.FAILED,
    "cancelled": Phase.FAILED,
}
"""By status in lower case; any other is RUNNING."""


class OperationBody(Struct, frozen=True, rename="camel"):
    """The members that matter. What stands in the others, and in an unexpected type, never fails a job."""

    status: str
    percent_completed: Any = None
    analyze_result: Raw = Raw(b"null")
    """The result's bytes as they stand in the body."""
    error: Raw = Raw(b"null")

    @property
    def phase(self) -> Phase:
        """What the status means."""
        return ENDS.get(self.status.lower(), Phase.RUNNING)

    @property
    def percent(self) -> float | None:
        """`percentCompleted`, when it is a number of 0 to 100."""
        value = self.percent_completed
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and 0 <= value <= 100 else None


class _Pages(Struct):
    pages: list[Raw]


def read_operation(body: bytes) -> OperationBody:
    """Read the body of a poll, which is JSON already checked.

    Raises:
        ValueError: it is no operation: no object, or one without a status; or it is nested beyond what can be read.
    """
    try:
        return msgspec.json.decode(body.removeprefix(BYTE_ORDER_MARK), type=OperationBody)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def page_count(result: Raw) -> int | None:
    """How many pages a result lists; None when it does not list them."""
    try:
        return len(msgspec.json.decode(result, type=_Pages).pages)
    except (msgspec.ValidationError, RecursionError):
        return None
