"""The polling loop on virtual time."""

import pytest
import trio
from azure_case import ACCEPTED, DONE, ENDPOINT, HANG, LOST, PATH, RUNNING, Case, saved

from adapters.base import AdapterError, Kind
from adapters.http_connection import Broken
from adapters.testing.azure_stub import RESULT


async def test_azure_polls_until_the_result(autojump_clock):
    """The waits grow, the result is the analyzeResult verbatim with its pages (GW-8)."""
    case = Case(ACCEPTED, RUNNING, RUNNING, DONE)
    outcome = await case.run()
    assert outcome.body == RESULT
    assert (outcome.content_type, outcome.http_status, outcome.pages) == ("application/json", 200, 2)
    assert outcome.upstream_request_id == "op-1"
    assert case.waits == [0.5, 0.75, 1.125]
    assert case.client.methods == ["POST", "GET", "GET", "GET"]


async def test_azure_poll_request(autojump_clock):
    """Each poll carries the key, Accept and one client request id, that of the submit (GW-3, GW-8)."""
    case = Case(ACCEPTED, RUNNING, DONE)
    await case.run()
    headers = [dict(request.headers) for _, request in case.client.asked]
    assert {h["Ocp-Apim-Subscription-Key"] for h in headers} == {"k-0123456789"}
    [request_id] = {h["x-ms-client-request-id"] for h in headers}
    assert len(request_id) == 36
    assert [set(h) for h in headers[1:]] == [
        {"Accept", "x-ms-client-request-id", "Ocp-Apim-Subscription-Key"}
    ] * 2
    assert {request.url for _, request in case.client.asked[1:]} == {ENDPOINT + PATH}
    other = Case(ACCEPTED, DONE)
    await other.run()
    assert dict(other.client.asked[0][1].headers)["x-ms-client-request-id"] != request_id


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("3", 3.0),
        ("1.5", 1.5),
        ("Tue, 14 Nov 2023 22:13:24 GMT", 4.0),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0.5),
        ("0", 0.5),
        ("-4", 0.5),
        ("soon", 0.5),
        ("", 0.5),
        ("99999999999999999999", 60.0),
        ("9" * 400, 60.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 60.0),
    ],
)
@pytest.mark.parametrize("status", [202, 200, 429, 503])
async def test_azure_retry_after(autojump_clock, value, wait, status):
    """Retry-After is honoured in every form, on the submit, a running poll, a 429 and a 503; else the own pace (GW-8)."""
    headers = {"Retry-After": value}
    if status == 202:
        case = Case((202, ACCEPTED[1] | headers, b""), DONE)
    else:
        case = Case(ACCEPTED, (status, headers, RUNNING[2]), DONE, resume=saved(0))
        case.client.plays.pop(0)
    await case.run()
    assert case.waits == [wait]


@pytest.mark.parametrize(
    "trouble",
    [
        (429, {"Retry-After": "1"}, b'{"error":{"code":"429","message":"slow down"}}'),
        (429, {}, b""),
        (500, {}, b"Internal Server Error"),
        (502, {}, b"<html>"),
        (503, {"Retry-After": "2"}, b""),
        (504, {}, b""),
        LOST,
        (200, {}, Broken("reset")),
        (404, {}, b'{"error":{"code":"NotFound"}}'),
        HANG,
    ],
    ids=str,
)
async def test_azure_trouble_while_polling_is_waited_out(autojump_clock, trouble):
    """429, 5xx, a lost connection, a body that breaks off, an early 404 and silence poll on; nothing is sent twice (GW-8)."""
    case = Case(ACCEPTED, trouble, trouble, DONE)
    outcome = await case.run()
    assert outcome.body == RESULT
    assert case.client.methods == ["POST", "GET", "GET", "GET"]


async def test_azure_slow_result_is_not_silence(autojump_clock):
    """Only the head of an answer has a bound: a result may take minutes to arrive (GW-8)."""
    case = Case(ACCEPTED, (*DONE, 300))
    assert (await case.run()).body == RESULT
    assert case.client.methods == ["POST", "GET"]


async def test_azure_unknown_for_ten_seconds(autojump_clock):
    """A 404 within 10 s of the submit is "not visible yet"; later the operation is gone and forgotten (AX-7, GW-8)."""
    case = Case(ACCEPTED, (404, {}, b""))
    error = await case.failure()
    assert (error.kind, error.code, error.upstream_status) == (Kind.UNKNOWN, "OPERATION_GONE", 404)
    assert 10 <= case.client.times[-1] - case.client.times[0] < 15
    assert case.client.times[-2] - case.client.times[0] < 10
    assert case.report.saved == b""
    assert case.client.methods.count("POST") == 1


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        ((401, {}, b'{"error":{"code":"401","message":"Access denied."}}'), Kind.AUTH, "UPSTREAM_AUTH"),
        ((403, {}, b""), Kind.AUTH, "UPSTREAM_AUTH"),
        ((400, {}, b'{"error":{"code":"InvalidArgument"}}'), Kind.PROVIDER_4XX, "InvalidArgument"),
        ((302, {"Location": "https://evil.example"}, b""), Kind.PROVIDER_4XX, "UPSTREAM_REDIRECT"),
        ((200, {"Content-Type": "text/html"}, b"<html>"), Kind.PARSE, "UPSTREAM_NOT_JSON"),
        ((200, {}, b""), Kind.PARSE, "UPSTREAM_NOT_JSON"),
        ((200, {}, b'{"status":"succeeded","analyzeResult":{"a":NaN}}'), Kind.PARSE, "UPSTREAM_NOT_JSON"),
        ((200, {}, b'{"progress":1}'), Kind.PARSE, "UPSTREAM_PARSE"),
        ((200, {}, b'{"status":"succeeded"}'), Kind.PARSE, "UPSTREAM_PARSE"),
        ((200, {}, b'{"status":"succeeded","analyzeResult":null}'), Kind.PARSE, "UPSTREAM_PARSE"),
        ((600, {}, b""), Kind.UNKNOWN, "UNKNOWN"),
        (
            (
                200,
                {},
                b'{"status":"failed","error":{"code":"InvalidRequest","innererror":{"code":"InvalidContent"}}}',
            ),
            Kind.PROVIDER_4XX,
            "InvalidContent",
        ),
        ((200, {}, b'{"status":"canceled"}'), Kind.PROVIDER_5XX, "UPSTREAM_5XX"),
    ],
)
async def test_azure_final_answers_to_a_poll(autojump_clock, answer, kind, code):
    """A refusal, what is no operation and a failed operation end the attempt with their kind and code (AX-7, GW-8)."""
    case = Case(ACCEPTED, RUNNING, answer)
    error = await case.failure()
    assert (error.kind, error.code) == (kind, code)
    assert case.client.methods == ["POST", "GET", "GET"]


@pytest.mark.parametrize("member", ["analyzeResult", "error", "other", "percentCompleted"])
@pytest.mark.parametrize("status", ["succeeded", "failed", "running"])
async def test_azure_operation_of_any_depth(autojump_clock, member, status):
    """However deeply an operation is nested, it is read or refused: never a RecursionError (GW-8)."""
    for depth in range(1, 1100, 9):
        nested = b"[" * depth + b"]" * depth
        body = b'{"status":"%s","%s":%s}' % (status.encode(), member.encode(), nested)
        case = Case(ACCEPTED, (200, {}, body), DONE)
        try:
            outcome = await case.run()
        except AdapterError as error:
            assert error.kind in {Kind.PARSE, Kind.PROVIDER_5XX}
        else:
            assert outcome.body in {nested, RESULT}


async def test_azure_progress_reports(autojump_clock):
    """Submitting, then analyzing by percentCompleted or by an estimate below 0.95 (GW-8)."""
    half = (200, {}, b'{"status":"running","percentCompleted":50}')
    case = Case(ACCEPTED, half, *[RUNNING] * 100, DONE)
    await case.run()
    stages = case.report.stages
    assert stages[:3] == [("submitting", 0.0), ("analyzing", 0.0), ("analyzing", 0.5)]
    assert {stage for stage, _ in stages[3:]} == {"analyzing"}
    estimates = [progress for _, progress in stages[3:]]
    assert estimates == sorted(estimates)
    assert 0.9 < estimates[-1] < 0.95


@pytest.mark.parametrize("status", [b"skipped", b"completed", b"somethingNew"])
async def test_azure_unknown_status_polls_on_until_the_deadline(autojump_clock, status):
    """An unknown status is never an end; the deadline is (AX-7, GW-8)."""
    case = Case(ACCEPTED, (200, {}, b'{"status":"%s"}' % status), deadline_s=60)
    with trio.move_on_after(60) as scope:
        await case.run()
    assert scope.cancelled_caught
    assert len(case.client.asked) > 10
    assert set(case.client.methods[1:]) == {"GET"}
