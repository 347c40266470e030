"""Events: the members of the schema, and where their values come from."""

import msgspec
import pytest
from audit_fakes import CREATED, FINISHED, FakePayloads, make_job, origin
from msgspec.structs import replace

from gateway.audit.event import Action, Body, Refusal, action_event, job_event, refusal_event
from gateway.clock import rfc3339
from store.job import ErrorKind, GroupCounts, GroupTerms, Status

MEMBERS = [
    "schema", "event_id", "ts", "trace_id", "tenant", "surface", "user_id", "operation", "model",
    "upstream", "upstream_class", "endpoint", "priority", "status", "http_status", "error_code",
    "error_kind", "attempts", "job_id", "parent_job_id", "doc_hash", "pages", "queue_ms", "upstream_ms",
    "total_ms", "usage", "stream", "client_disconnected", "replica", "request", "response",
]  # fmt: skip


COMPLETED = {
    "schema": 1,
    "event_id": "job_1.2",
    "ts": rfc3339(FINISHED),
    "trace_id": "trace-1",
    "tenant": "acme",
    "surface": "portal",
    "user_id": "u1",
    "operation": "ocr",
    "model": "paddle",
    "upstream": "ocr",
    "upstream_class": "on_prem",
    "endpoint": "http://ocr-1",
    "priority": 50,
    "status": "completed",
    "http_status": 200,
    "error_code": None,
    "error_kind": None,
    "attempts": 2,
    "job_id": "job_1",
    "parent_job_id": None,
    "doc_hash": "sha256:abc",
    "pages": 4,
    "queue_ms": 300,
    "upstream_ms": 550,
    "total_ms": FINISHED - CREATED,
    "usage": {"input_tokens": None, "output_tokens": None, "pages": 4},
    "stream": False,
    "client_disconnected": False,
    "replica": "replica-0",
}
"""The event of `make_job` with a result, without its bodies."""


@pytest.fixture
def payloads() -> FakePayloads:
    return FakePayloads()


def written(event) -> dict:
    return msgspec.json.decode(msgspec.json.encode(event))


def test_event_has_exactly_the_members_of_the_schema_in_order(payloads) -> None:
    """A job's event has the members of schema v1, in the page's order, also those that are null (GW-13)."""
    event = written(job_event(make_job(payloads.keep("p", b"doc")), origin()))
    assert list(event) == MEMBERS
    assert list(event["request"]) == ["content_type", "bytes", "body", "body_truncated", "full_body_sha256"]
    assert list(event["usage"]) == ["input_tokens", "output_tokens", "pages"]


def test_event_of_a_completed_job_tells_the_record(payloads) -> None:
    """Every value of the event stands on the record; the trace id is the submit's (AT-8, GW-13)."""
    payload, result = payloads.keep("p", b"doc"), payloads.keep("r", b"{}", "application/json")
    event = written(job_event(make_job(payload, result), origin()))
    request, response = event.pop("request"), event.pop("response")
    assert event == COMPLETED
    described = {"body": None, "body_truncated": False}
    assert request == described | {
        "content_type": "application/pdf",
        "bytes": 3,
        "full_body_sha256": payload.sha256,
    }
    assert response == described | {
        "content_type": "application/json",
        "bytes": 2,
        "full_body_sha256": result.sha256,
    }


def test_clocks_stand_still_and_the_event_repeats_itself(payloads) -> None:
    """Made again later, from the same record, the event is the same to the last member (AT-14)."""
    job = make_job(payloads.keep("p", b"doc"))
    assert job_event(job, origin(FINISHED)) == job_event(job, origin(FINISHED + 10**7))


def test_superseded_job_is_told_as_it_ended(payloads) -> None:
    """A retry that came before the event does not change what the event says, nor its id."""
    job = make_job(payloads.keep("p", b"doc"), error_code="TIMEOUT", error_kind=ErrorKind.TIMEOUT)
    later = msgspec.structs.replace(job, status=Status.SUPERSEDED, superseded_from=Status.FAILED)
    assert job_event(later, origin()) == job_event(job, origin())


def test_failed_job_has_no_response(payloads) -> None:
    """Only what was delivered is a response; the error stands on the event."""
    job = make_job(
        payloads.keep("p", b"doc"),
        payloads.keep("r", b"half an answer"),
        status=Status.FAILED,
        error_code="UPSTREAM_5XX",
        error_kind=ErrorKind.PROVIDER_5XX,
    )
    event = written(job_event(job, origin()))
    assert event["response"] is None
    assert (event["status"], event["error_code"], event["error_kind"]) == (
        "failed",
        "UPSTREAM_5XX",
        "provider_5xx",
    )


def test_job_that_never_ran_is_told_by_the_replica_that_writes(payloads) -> None:
    """Without an attempt there is no other replica; an upstream that is gone has no class."""
    job = make_job(
        payloads.keep("p", b"doc"), attempts=(), fence=0, attempt=0, upstream="gone", endpoint=None
    )
    event = job_event(job, origin())
    assert (event.replica, event.upstream_class, event.event_id) == ("replica-1", None, "job_1.0")


def test_multipart_request_is_the_file_part(payloads) -> None:
    """Type, size and hash of a multipart request are those of its file part."""
    part = {"offset": 4, "length": 3, "part_type": "image/png"}
    payload = payloads.keep("p", b"----png----", "multipart/form-data; boundary=x", **part)
    assert job_event(make_job(payload), origin()).request == Body(
        content_type="image/png", bytes=3, full_body_sha256=payload.sha256
    )


def test_refusal_has_status_refused_and_an_id_of_its_own(payloads) -> None:
    """A refusal by policy tells what was understood; operation is null when it is not known (GW-2)."""
    told = Refusal(
        error_code="EXTERNAL_UPSTREAM_FORBIDDEN", http_status=403, trace_id="t", tenant="acme", upstream="ocr"
    )
    event = written(refusal_event(told, origin()))
    assert list(event) == MEMBERS
    assert event["event_id"] == "ulid-0"
    assert (event["status"], event["http_status"], event["error_code"]) == (
        "refused",
        403,
        "EXTERNAL_UPSTREAM_FORBIDDEN",
    )
    assert (event["operation"], event["upstream_class"], event["request"]) == (None, "on_prem", None)
    assert event["ts"] == rfc3339(FINISHED + 5)


def test_action_has_three_members_more() -> None:
    """What an operator did names action, actor and target; operation is null."""
    event = written(action_event(Action(action="drain", actor="admin", target="replica-1"), origin()))
    assert list(event) == [*MEMBERS, "action", "actor", "target"]
    assert (event["action"], event["actor"], event["target"]) == ("drain", "admin", "replica-1")
    assert event["operation"] is None


def test_event_of_a_group_has_its_counts() -> None:
    """The one event of a group is a `job` with the counts of its children, those that were dropped among them; it names
    no upstream and has no bodies (GW-14)."""
    parent = replace(
        make_job(None),
        operation="job",
        model="",
        upstream="",
        fence=0,
        attempt=0,
        attempts=(),
        group=GroupTerms(7, 2),
        counts=GroupCounts(7, 0, 0, 4, 1, 2),
    )
    event = written(job_event(parent, origin()))
    assert list(event) == [*MEMBERS, "counts"]
    assert event["counts"] == {"total": 7, "completed": 4, "failed": 1, "cancelled": 2}
    assert (event["operation"], event["event_id"]) == ("job", "job_1.0")
    nothing = ("model", "upstream", "upstream_class", "request", "response", "parent_job_id")
    assert [event[name] for name in nothing] == [None] * 6


def test_event_of_a_child_names_its_group(payloads) -> None:
    """A child's event is a `job_child` like any other event, with its parent (GW-14)."""
    child = replace(
        make_job(payloads.keep("p", b"doc")), id="job_9.3", operation="job_child", parent_id="job_9", index=3
    )
    event = written(job_event(child, origin()))
    assert list(event) == MEMBERS
    assert (event["operation"], event["parent_job_id"], event["event_id"]) == (
        "job_child",
        "job_9",
        "job_9.3.2",
    )
