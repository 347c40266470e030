"""A submit's body as it is read, and what is found in it when it is one document."""

from collections.abc import AsyncIterator
from typing import Final

from msgspec import Raw, Struct

from adapters.media_type import media_type_of
from gateway.config.schema import Jobs, Server
from gateway.http.body import limited
from gateway.http.message import Head, Request
from gateway.http.submit.content_type import checked_type
from gateway.http.submit.form import FILE_HEAD_BYTES, MAX_OTHER_BYTES, FilePart
from gateway.http.submit.options import OptionSet
from gateway.problems import ApiError
from store.api_payloads import Draft

FORM: Final = "multipart/form-data"
JSON: Final = "application/json"


class Document(Struct, frozen=True, kw_only=True):
    """The one document of a body."""

    draft: Draft
    """Has every byte that is to be stored."""
    sha256: str
    """Bare hex, of the document alone."""
    content_type: str
    """Of the stored bytes: for a form that of the whole body, with its boundary."""
    filename: str | None = None
    part: FilePart | None = None
    """Where the document lies in the stored bytes; None: it is all of them."""
    other_fields: tuple[tuple[str, bytes], ...] = ()
    """Of a form: the fields that are no options of ours."""
    input: Raw | None = None
    """Of a JSON body: the document itself."""


class Upload(Struct, frozen=True, kw_only=True):
    """A request whose body is to be read.

    `options` holds those of the head already; the reader adds those of the body.
    """

    request: Request
    options: OptionSet
    limits: Server
    jobs: Jobs
    now: int
    """The store's time, ms since the epoch."""

    @property
    def content_type(self) -> str:
        """As the client named it.

        Raises:
            ApiError: INVALID_REQUEST, it is none.
        """
        return checked_type(self.request.head.header("content-type"), "header:content-type")

    @property
    def media_type(self) -> str:
        """The content type without its parameters, in lower case."""
        return media_type_of(self.content_type)

    @property
    def takes_options(self) -> bool:
        """Whether the body may hold options, and be a group."""
        return self.media_type in {FORM, JSON}

    @property
    def max_bytes(self) -> int:
        """What the whole body may have. A form may turn out to be a group at its end."""
        if self.media_type == JSON:
            return self.limits.max_json_bytes
        if self.media_type == FORM:
            heads = FILE_HEAD_BYTES * (self.jobs.max_children - 1)
            return max(self.limits.max_body_bytes, self.jobs.max_group_bytes + heads) + MAX_OTHER_BYTES
        return self.limits.max_body_bytes

    @property
    def reserve(self) -> int:
        """Room to hold for it before it is read."""
        announced = self.request.head.content_length
        return min(self.max_bytes, self.limits.max_body_bytes) if announced is None else announced

    def chunks(self) -> AsyncIterator[bytes]:
        """The body; PAYLOAD_TOO_LARGE by its Content-Length at once, else while reading."""
        return limited(self.request, self.max_bytes)


def refuse_empty(size: int) -> None:
    """Refuse a document without a byte.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    if not size:
        raise ApiError("INVALID_REQUEST", "the document is empty")


def announces_encoding(head: Head) -> bool:
    """Whether the body is encoded on its way (compressed), which the API does not take."""
    encoding = head.header("content-encoding")
    return encoding is not None and encoding.strip().lower() not in {"", "identity"}
