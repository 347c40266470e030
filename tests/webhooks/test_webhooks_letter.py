"""What is told about an ended job, and how it is signed."""

import msgspec
import pytest
from hook_making import KEY, URL, letter, signature_of

from gateway.config.secrets import webhook_key
from gateway.webhooks.letter import kept_letter, letter_of, message_id, read_letter, signed_headers
from store.job import Blob, Job, Status, Submission
from store.transitions import CANCELLED, created

FINISHED_AT = 1_750_000_001_234
NOW = 1_750_000_009_999


def job(**fields) -> Job:
    submission = Submission(
        id="job_01JD9Z3V5QW8X2K7M4N6P1R3T5",
        tenant="acme",
        model="m",
        operation="ocr",
        upstream="u",
        priority=50,
        max_attempts=3,
        trace_id="trace-1",
        payload=Blob(id="b", size=1, sha256="0" * 64, content_type="application/pdf"),
        request_fingerprint="f",
        callback_url=URL,
        metadata={"order": 7, "note": "ü"},
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        tracestate="a=b",
    )
    record = created(submission, seq=1, change=1, now=1_750_000_000_000)
    usual = {"status": Status.COMPLETED, "finished_at": FINISHED_AT}
    return msgspec.structs.replace(record, **usual | fields)


def told(record: Job) -> dict:
    return msgspec.json.decode(letter_of(record).body)


def test_the_body():
    """A webhook says which job ended how and when, where its result is, and what the client wants to know it by (20)."""
    assert told(job()) == {
        "type": "job.completed",
        "timestamp": "2025-06-15T15:06:41.234Z",
        "data": {
            "job_id": "job_01JD9Z3V5QW8X2K7M4N6P1R3T5",
            "status": "completed",
            "error_code": None,
            "result_url": "/jobs/job_01JD9Z3V5QW8X2K7M4N6P1R3T5/result",
            "metadata": {"order": 7, "note": "ü"},
        },
    }


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
def test_each_end_has_its_type(status):
    """The type names the terminal status, also of a job that a retry has superseded before anything was sent (20)."""
    assert told(job(status=status))["type"] == f"job.{status}"
    superseded = told(job(status=Status.SUPERSEDED, superseded_from=status))
    assert (superseded["type"], superseded["data"]["status"]) == (f"job.{status}", status)


def test_error_code():
    """A job that did not complete says why, as its problem does."""
    assert told(job(status=Status.CANCELLED, problem=CANCELLED))["data"]["error_code"] == "CANCELLED"
    assert told(job(status=Status.FAILED, error_code="TIMEOUT"))["data"]["error_code"] == "TIMEOUT"


def test_it_is_small():
    """The largest body stays below 20 kB: metadata is bounded by 4 KiB, everything else is short."""
    largest = {"m": "\\" * 2000}
    assert len(msgspec.json.encode(largest)) <= 4096
    assert len(letter_of(job(metadata=largest)).body) < 5000


@pytest.mark.parametrize("fields", [{"callback_url": None}, {"finished_at": None}])
def test_nothing_to_tell(fields):
    """There is no letter about a job that asks for none or has not ended."""
    with pytest.raises(ValueError, match="nothing to tell"):
        letter_of(job(**fields))


def test_message_id_is_the_jobs():
    """A job has one message, with one id, whoever sends it and however often."""
    assert message_id(job().id) == "msg_01JD9Z3V5QW8X2K7M4N6P1R3T5"


def test_a_letter_is_kept_whole():
    """What the store keeps is all that later attempts need, and is read back as it was."""
    first = letter_of(job())
    assert read_letter(kept_letter(first)) == first
    again = msgspec.structs.replace(first, tries=3, next_at=NOW)
    assert read_letter(kept_letter(again)) == again


@pytest.mark.parametrize("kept", [b"", b"\xc1", b"\x80", b"the letter", b"\x93\x01\x02\x03"])
def test_a_letter_of_another_release(kept):
    """What cannot be read is no letter, and no crash."""
    assert read_letter(kept) is None


def test_a_letter_shows_no_url():
    """Path and query of a callback_url, which may hold a secret, are in no repr (GW-3)."""
    assert repr(letter()) == "<Letter of acme, 0 tries>"


def test_headers():
    """An attempt carries the standard's three headers, its type, and the job's trace context; the time is the attempt's."""
    first = letter_of(job())
    headers = dict(signed_headers(first, "msg_1", NOW, KEY))
    assert headers.pop("webhook-signature") == signature_of(headers, first.body, KEY)
    assert headers == {
        "Content-Type": "application/json",
        "webhook-id": "msg_1",
        "webhook-timestamp": "1750000009",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "a=b",
    }
    assert "traceparent" not in dict(signed_headers(letter(), "msg_1", NOW, KEY))


def test_the_published_example():
    """The signature is the one of the standard's published example."""
    example = msgspec.structs.replace(letter(), body=b'{"test": 2432232314}')
    key = webhook_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = dict(signed_headers(example, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330_000, key))
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
