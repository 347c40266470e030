"""The one exception of the client."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

UNREACHABLE: Final = "UNREACHABLE"
"""Code when no answer came."""
UNEXPECTED: Final = "UNEXPECTED_ANSWER"
"""Code of an answer that is not the gateway's: something stands in between."""

_PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses that something in between answers while it is worth asking again."""


class GatewayError(Exception):
    """The gateway refused, or could not be reached.

    Args:
        code: the problem's stable code, `UNREACHABLE`, or `UNEXPECTED_ANSWER`.
        detail: what is wrong, for people.
        status: of the answer; None when there is none.
        retryable: whether the same request may succeed later.
        members: further members of the problem document.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.status = status
        self.retryable = retryable
        self.members = dict(members or {})
        """The problem document as it came; empty when there is none."""

    @property
    def errors(self) -> Sequence[Mapping[str, str]]:
        """`{pointer, detail}` of each fault, when the gateway names them."""
        errors: Sequence[Mapping[str, str]] = self.members.get("errors") or ()
        return errors

    @property
    def job_id(self) -> str | None:
        """The job that it is about."""
        return self.members.get("job_id")

    @property
    def trace_id(self) -> str | None:
        """By which the gateway's logs and audit events know the request."""
        return self.members.get("trace_id")


def refusal_of(status: int, content: bytes) -> GatewayError:
    """The error that an answer of status 300 or more means."""
    try:
        problem = msgspec.json.decode(content, type=dict[str, Any])
        return GatewayError(
            msgspec.convert(problem["code"], str),
            msgspec.convert(problem.get("detail", ""), str),
            status=status,
            retryable=msgspec.convert(problem.get("retryable", False), bool),
            members=problem,
        )
    except (ValueError, KeyError):
        text = content[:200].decode("utf-8", "replace").strip()
        detail = f"answered {status}, not as a gateway does{': ' if text else ''}{text}"
        return GatewayError(UNEXPECTED, detail, status=status, retryable=status in _PASSING)


def not_understood(status: int, reason: object) -> GatewayError:
    """An answer below 300 that is not what was asked for."""
    return GatewayError(UNEXPECTED, f"answered {status}, not as a gateway does: {reason}", status=status)
