"""What is told about an ended job, and how it is signed (Standard Webhooks 1.0).

A job ends once, so its word is one message: its id is made of the job's, and every attempt carries the same one,
whichever process makes it. The first attempt writes the letter from the record; later ones have it from the store,
for the record may be gone or superseded by then. A letter holds no secret but what a tenant put into the URL.
"""

import hashlib
import hmac
from base64 import b64encode
from typing import Final

import msgspec
from msgspec import Struct

from gateway.clock import rfc3339
from store.job import Job, Status
from store.ulid import PREFIX

MESSAGE_PREFIX: Final = "msg_"


class WebhookJob(Struct, frozen=True, kw_only=True):
    """What a webhook says about a job."""

    job_id: str
    status: Status
    """How the job ended; also when a retry has superseded it since."""
    error_code: str | None
    result_url: str
    """A path of the API, as in the job object."""
    metadata: dict[str, object] | None


class Webhook(Struct, frozen=True, kw_only=True):
    """The body of a webhook."""

    type: str
    """`job.` and the status."""
    timestamp: str
    """When the job ended."""
    data: WebhookJob


class Letter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message on its way, complete but for the signature."""

    tenant: str
    """Whose secret signs it."""
    url: str
    body: bytes
    trace_id: str
    traceparent: str | None = None
    tracestate: str | None = None
    tries: int = 0
    """Attempts of the schedule that have failed."""
    next_at: int | None = None
    """When the schedule has it tried next; earlier, it is somebody who asked. Instant, ms."""

    def __repr__(self) -> str:
        return f"<Letter of {self.tenant}, {self.tries} tries>"


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Letter).decode


def letter_of(job: Job) -> Letter:
    """The letter about a finished job.

    Raises:
        ValueError: it asks for none, or has not finished.
    """
    if job.callback_url is None or job.finished_at is None:
        raise ValueError(f"{job.id} has nothing to tell anybody")
    status = job.superseded_from or job.status
    word = Webhook(
        type=f"job.{status}",
        timestamp=rfc3339(job.finished_at),
        data=WebhookJob(
            job_id=job.id,
            status=status,
            error_code=job.problem.code if job.problem is not None else job.error_code,
            result_url=f"/jobs/{job.id}/result",
            metadata=job.metadata,
        ),
    )
    return Letter(
        tenant=job.tenant,
        url=job.callback_url,
        body=msgspec.json.encode(word),
        trace_id=job.trace_id,
        traceparent=job.traceparent,
        tracestate=job.tracestate,
    )


def read_letter(kept: bytes) -> Letter | None:
    """A letter as the store kept it; None: it is of another release, and cannot be read."""
    try:
        return _decode(kept)
    except msgspec.MsgspecError:
        return None


def kept_letter(letter: Letter) -> bytes:
    """A letter as the store keeps it."""
    return _encode(letter)


def message_id(job_id: str) -> str:
    """The id of the message about a job."""
    return MESSAGE_PREFIX + job_id.removeprefix(PREFIX)


def signed_headers(letter: Letter, message: str, now_ms: int, key: bytes) -> list[tuple[str, str]]:
    """The headers of one attempt.

    Args:
        letter: what is sent.
        message: its id.
        now_ms: the present instant.
        key: the tenant's.
    """
    timestamp = str(now_ms // 1000)
    signed = b".".join((message.encode(), timestamp.encode(), letter.body))
    signature = b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    headers = {
        "Content-Type": "application/json",
        "webhook-id": message,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{signature}",
        "traceparent": letter.traceparent,
        "tracestate": letter.tracestate,
    }
    return [(name, value) for name, value in headers.items() if value is not None]
