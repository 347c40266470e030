"""What the client repeats, and what it does not."""

import httpx2
import pytest

from gateway.client import Client, GatewayError, Repeats

JOB = {
    "job_id": "job_1", "status": "queued", "done": False, "operation": "ocr", "model": "ocr", "upstream": "ocr",
    "priority": 50, "priority_class": "batch", "created_at": "2026-01-01T00:00:00.000Z",
    "updated_at": "2026-01-01T00:00:00.000Z", "trace_id": "t", "durability": "disk", "poll_url": "/jobs/job_1",
    "result_url": "/jobs/job_1/result",
}  # fmt: skip
AT_ONCE = Repeats(times=3, first_pause_s=0.0)


class Script:
    """Answers one after the other; an exception is raised instead."""

    def __init__(self, *answers: httpx2.Response | type[httpx2.TransportError]) -> None:
        self._answers = list(answers)
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        request.read()
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, httpx2.Response):
            return answer
        raise answer("scripted", request=request)

    def client(self, repeats: Repeats = AT_ONCE) -> Client:
        return Client("http://gateway", repeats=repeats, transport=httpx2.MockTransport(self))


def job(status: int = 200) -> httpx2.Response:
    return httpx2.Response(status, json=JOB)


def problem(status: int, code: str, **headers: str) -> httpx2.Response:
    members = {"code": code, "detail": "no", "status": status, "retryable": status >= 429, "job_id": "job_1"}
    return httpx2.Response(status, json=members, headers=headers)


def test_client_submit_is_repeated_with_the_same_key_and_the_whole_document(tmp_path):
    """A submit whose connection broke is sent again, as a whole and under the same idempotency key."""
    path = tmp_path / "scan.png"
    path.write_bytes(b"document")
    with path.open("rb") as file:
        file.seek(3)
        for document, sent in ((path, b"document"), (b"document", b"document"), (file, b"ument")):
            script = Script(httpx2.ReadError, httpx2.ConnectError, job(202))
            with script.client() as client:
                assert client.submit(document, model="ocr").job_id == "job_1"
            assert [request.content for request in script.requests] == [sent] * 3
            assert len({request.headers["idempotency-key"] for request in script.requests}) == 1
            assert script.requests[0].headers["content-length"] == str(len(sent))


def test_client_keys_differ_between_submits():
    """Two submits of the same document are two jobs, unless the caller names a key."""
    script = Script(job(202), job(202), job(202))
    with script.client() as client:
        client.submit(b"document", model="ocr")
        client.submit(b"document", model="ocr")
        client.submit(b"document", model="ocr", key="mine")
    keys = [request.headers["idempotency-key"] for request in script.requests]
    assert len(set(keys)) == 3
    assert keys[2] == '"mine"'


def test_client_what_cannot_be_read_twice_is_sent_once():
    """Pieces that come once are not sent a second time, for half a document would be."""
    script = Script(httpx2.ReadError)
    with script.client() as client, pytest.raises(GatewayError, match="UNREACHABLE"):
        client.submit(iter([b"docu", b"ment"]), model="ocr")
    assert [request.content for request in script.requests] == [b"document"]


def test_client_retry_is_repeated_only_when_nothing_was_done():
    """A retry, which makes a job, is sent again after a refusal or a connection never made, not after one that broke."""
    busy = {"retry-after": "0"}
    script = Script(httpx2.ConnectError, problem(503, "STORE_UNAVAILABLE", **busy), job(202))
    with script.client() as client:
        client.retry("job_1")
    script = Script(httpx2.ReadError)
    with script.client() as client, pytest.raises(GatewayError, match="UNREACHABLE") as caught:
        client.retry("job_1")
    assert caught.value.retryable
    assert caught.value.status is None
    script = Script(problem(502, "BAD"))
    with script.client() as client, pytest.raises(GatewayError):
        client.retry("job_1")


def test_client_repetitions_are_bounded():
    """The last refusal is raised once the tries, or the time, are used up."""
    script = Script(*[problem(503, "DRAINING", **{"retry-after": "0"})] * 4)
    with script.client() as client, pytest.raises(GatewayError) as caught:
        client.get("job_1")
    assert (caught.value.code, caught.value.status, len(script.requests)) == ("DRAINING", 503, 4)
    script = Script(problem(503, "DRAINING", **{"retry-after": "60"}))
    with script.client(Repeats(within_s=30)) as client, pytest.raises(GatewayError):
        client.get("job_1")
    assert len(script.requests) == 1


def test_client_a_full_queue_is_waited_out_on_request_alone():
    """429 is raised, unless the client was asked to wait while the queue is full."""
    full = {"retry-after": "0"}
    script = Script(problem(429, "QUEUE_FULL", **full))
    with script.client() as client, pytest.raises(GatewayError, match="QUEUE_FULL"):
        client.submit(b"document", model="ocr")
    script = Script(problem(429, "QUEUE_FULL", **full), job(202))
    with script.client(Repeats(first_pause_s=0, when_full=True)) as client:
        client.submit(b"document", model="ocr")


def test_client_a_delete_that_was_done_by_the_first_try_is_done():
    """An unknown job answers the repetition of a delete whose first answer was lost; it is an error to a first one."""
    script = Script(httpx2.ReadError, problem(404, "JOB_UNKNOWN"))
    with script.client() as client:
        client.delete("job_1")
    script = Script(problem(404, "JOB_UNKNOWN"))
    with script.client() as client, pytest.raises(GatewayError, match="JOB_UNKNOWN"):
        client.delete("job_1")


def test_client_a_refusal_says_what_the_problem_says():
    """Code, detail, status, whether to try again, job and the single faults of a problem document are on the exception."""
    refused = {
        "code": "INVALID_REQUEST", "detail": "expected a model", "status": 400, "retryable": False, "job_id": "job_9",
        "trace_id": "t1", "errors": [{"pointer": "/model", "detail": "expected"}],
    }  # fmt: skip
    script = Script(httpx2.Response(400, json=refused))
    with script.client() as client, pytest.raises(GatewayError) as caught:
        client.submit(b"document")
    error = caught.value
    assert (error.code, error.detail, error.status, error.retryable) == (
        "INVALID_REQUEST", "expected a model", 400, False,
    )  # fmt: skip
    assert (error.job_id, error.trace_id, error.errors) == ("job_9", "t1", refused["errors"])


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(502, text="<html>Bad Gateway</html>"),
        httpx2.Response(302, headers={"location": "/login"}),
        httpx2.Response(200, text="<html>hello</html>"),
        httpx2.Response(404, json={"code": 7}),
        httpx2.Response(404, json=["code"]),
    ],
    ids=str,
)
def test_client_an_answer_that_is_no_gateways_is_told_apart(answer):
    """What something in between answers is `UNEXPECTED_ANSWER`, with its words, never a decoding error."""
    with Script(answer).client(Repeats(times=0)) as client, pytest.raises(GatewayError) as caught:
        client.get("job_1")
    assert caught.value.code == "UNEXPECTED_ANSWER"
    assert caught.value.retryable is (answer.status_code == 502)
