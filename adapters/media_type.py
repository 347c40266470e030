"""What a Content-Type says: the one reading of it, for what goes to an upstream and for what comes back."""

from typing import Final

EVENT_STREAM: Final = "text/event-stream"


def media_type_of(content_type: str) -> str:
    """The type without its parameters, in lower case; empty for an empty header."""
    return content_type.partition(";")[0].strip().lower()


def is_json_type(content_type: str) -> bool:
    """Whether it says JSON: `application/json`, `text/json`, or any type with the suffix `+json` (RFC 6839)."""
    media_type = media_type_of(content_type)
    return media_type in {"application/json", "text/json"} or media_type.endswith("+json")
