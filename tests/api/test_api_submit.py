"""POST /jobs: the three bodies, the options, the answer."""

import msgspec
import pytest
import trio
from api_world import JSON, PADDLE, RAW, TRACE, Chunks, body_of, content, gone, open_world, sha256
from test_api_form import BODY, DOCUMENT, FILE, TYPE, field, form, part

from gateway.http.message import ClientGone
from store.job import Status
from store.testing.making import claim_one, complete

FORM = {"content-type": TYPE}


def json_body(**members) -> bytes:
    return msgspec.json.encode({"input": {"a": 1}, "model": "paddleocr"} | members)


# -------------------------------------------------------------------------------------------------------- the answer


async def test_accepted(world):
    """202 with Location, Retry-After: 1 and the job as created; it comes at admission, before any run (AT-15)."""
    reply = await world.submit(b"%PDF-1.7")
    job = content(reply)
    assert reply.status == 202
    assert reply.headers["Location"] == f"/jobs/{job['job_id']}" == job["poll_url"]
    assert reply.headers["Retry-After"] == "1"
    assert "Preference-Applied" not in reply.headers
    assert (job["status"], job["done"], job["attempt"]) == ("queued", False, 0)
    assert (job["operation"], job["upstream"], job["durability"]) == ("ocr", "paddle", "memory")
    assert (await world.store.jobs.counts()).by_status[Status.QUEUED] == 1


async def test_created_view_is_the_job_as_created(world):
    """The 202 says `queued` even when the job was claimed meanwhile."""
    create = world.store.jobs.create

    async def claimed_at_once(submission, draft):
        created = await create(submission, draft)
        await claim_one(world.store, PADDLE)
        return created

    world.store.jobs.create = claimed_at_once
    job = content(await world.submit())
    assert job["status"] == "queued"
    assert (await world.store.jobs.get(job["job_id"])).status is Status.PROCESSING


async def test_trace(world):
    """The request's id is the job's trace id, in the object and in the headers (AT-8)."""
    reply = await world.submit(headers=RAW | {"x-request-id": "mine-1"})
    assert content(reply)["trace_id"] == "mine-1" == reply.headers["X-Request-Id"]
    assert content(await world.submit())["trace_id"] == TRACE


async def test_counted(world):
    """Each submit is counted by its outcome."""
    await world.submit()
    with pytest.raises(Exception, match="empty"):
        await world.submit(b"")
    assert world.counted("accepted") == 1
    assert world.counted("invalid_request") == 1


# ----------------------------------------------------------------------------------------------------------- bodies


@pytest.mark.parametrize("size", [1, 65536, 65537, 2_500_000, 3_000_000])
async def test_raw(size):
    """A raw body is the document: stored as it came, hashed as it passed, up to the bound itself (GW-16)."""
    data = bytes(i * 7 % 251 for i in range(size))
    async with open_world() as world:
        chunks = Chunks([data[i : i + 65536] for i in range(0, size, 65536)])
        job = await world.submitted(chunks, RAW | {"content-length": str(size)})
        assert await world.document(job) == data
        assert (job.payload.sha256, job.payload.content_type) == (sha256(data), "application/pdf")
        assert job.doc_hash == f"sha256:{sha256(data)}"


async def test_raw_without_type(world):
    """A body without a type is octets."""
    job = await world.submitted(headers={"x-model": "paddleocr"})
    assert job.payload.content_type == "application/octet-stream"


@pytest.mark.parametrize("step", [1, 7, 64, 100_000])
async def test_form_is_stored_byte_identical(world, step):
    """A form is stored as it came, with the place, type, name and hash of its file (GW-9)."""
    body = form(field("model", b"paddleocr"), part(FILE, DOCUMENT, "Content-Type: application/pdf; v=1"))
    chunks = Chunks([body[i : i + step] for i in range(0, len(body), step)])
    job = await world.submitted(chunks, FORM)
    payload = job.payload
    assert await world.document(job) == body
    assert body[payload.offset : payload.offset + payload.length] == DOCUMENT
    assert payload.sha256 == sha256(DOCUMENT)
    assert (payload.filename, payload.content_type) == ("a.pdf", TYPE)
    assert payload.part_type == "application/pdf; v=1"


async def test_form_fields(world):
    """The fields of a form are the options of the job."""
    fields = {
        "model": b"paddleocr",
        "operation": b"ocr",
        "params": b'{"lang": "de", "n": [1, 2.5, null]}',
        "priority": b"interactive",
        "max_attempts": b"5",
        "run_at": b"2030-01-01T00:00:00Z",
        "result_ttl_s": b"60.5",
        "metadata": '{"Größe": "ß"}'.encode(),
    }
    job = await world.submitted(form(*(field(*item) for item in fields.items()), part(FILE, b"doc")), FORM)
    assert job.params == {"lang": "de", "n": [1, 2.5, None]}
    assert (job.priority, job.max_attempts, job.result_ttl_s) == (10, 5, 60.5)
    assert job.run_at == 1_893_456_000_000
    assert job.metadata == {"Größe": "ß"}


async def test_unknown_fields_of_a_form(world):
    """Unknown fields pass to an upstream that gets the form itself; elsewhere they are refused."""
    body = form(field("lang", b"de"), part(FILE, b"doc"))
    job = await world.submitted(body, FORM | {"x-model": "formreader"})
    assert await world.document(job) == body
    with pytest.raises(Exception, match=r"/lang: unknown field"):
        await world.submit(body, FORM | {"x-model": "paddleocr"})


async def test_json_input_is_stored_verbatim(world):
    """`input` is stored as the bytes that stood in the body, whitespace and number forms included."""
    body = b'{"model":"paddleocr", "input" : { "b" : 1.0e0,\n "a":"\\u00e9\\/" , "a": 2 }  ,"priority":7}'
    job = await world.submitted(Chunks([body[:31], body[31:]]), JSON)
    document = b'{ "b" : 1.0e0,\n "a":"\\u00e9\\/" , "a": 2 }'
    assert await world.document(job) == document
    assert (job.payload.sha256, job.payload.content_type) == (sha256(document), "application/json")
    assert job.priority == 7


@pytest.mark.parametrize("document", [b"null", b'"text"', b"[]", b"1"])
async def test_any_json_is_an_input(world, document):
    """An input may be any JSON value."""
    job = await world.submitted(b'{"model": "paddleocr", "input":' + document + b"}", JSON)
    assert await world.document(job) == document


async def test_large_json_input(world):
    """A large input goes to the store in steps and arrives whole."""
    document = msgspec.json.encode(["x" * 100] * 15_000)
    job = await world.submitted(b'{"model": "paddleocr", "input":' + document + b"}", JSON)
    assert await world.document(job) == document


async def test_json_options(world):
    """The members beside `input` are the options; null is an option left out."""
    body = json_body(
        params={"x": 1}, priority="batch", max_attempts=None, result_ttl_s=10, metadata={"k": ["v"]}
    )
    job = await world.submitted(body, JSON)
    assert (job.params, job.metadata) == ({"x": 1}, {"k": ["v"]})
    assert (job.priority, job.max_attempts, job.result_ttl_s) == (50, 3, 10)


# ---------------------------------------------------------------------------------------------------------- options


async def test_options_of_headers_and_query(world):
    """Raw bodies take their options from headers and the query."""
    headers = RAW | {
        "x-operation": "ocr",
        "x-priority": "33",
        "x-max-attempts": "20",
        "x-run-at": "2030-01-01T01:00:00+01:00",
        "x-surface": "portal",
        "x-user-id": "u-1",
        "x-doc-hash": "theirs",
        "x-doc-pages": "12",
    }
    query = [("params", '{"lang":"de"}'), ("metadata", "{}"), ("result_ttl_s", "7"), ("utm_source", "x")]
    job = await world.submitted(headers=headers, query=query)
    assert (job.priority, job.max_attempts, job.run_at) == (33, 20, 1_893_456_000_000)
    assert (job.surface, job.user_id, job.doc_hash, job.pages) == ("portal", "u-1", "theirs", 12)
    assert (job.params, job.metadata, job.result_ttl_s) == ({"lang": "de"}, {}, 7)


async def test_defaults(world):
    """What is left open comes from the configuration; the operation alone finds its only model."""
    job = await world.submitted(b"text", {"content-type": "text/plain", "x-operation": "classify"})
    assert (job.model, job.upstream, job.priority, job.max_attempts) == ("labels", "labels", 10, 3)


async def test_min_priority(world):
    """A tenant's min_priority raises smaller numbers, and the answer shows the number used."""
    job = content(await world.submit(headers=RAW | {"x-priority": "interactive"}, tenant="slow"))
    assert (job["priority"], job["priority_class"]) == (60, "batch")


async def test_result_ttl_only_shortens(world):
    """result_ttl_s may shorten the retention, never lengthen it."""
    job = await world.submitted(query=[("result_ttl_s", "999999")])
    assert job.result_ttl_s == 86400


async def test_trace_context(world):
    """traceparent and tracestate are kept when well-formed, of a later version too, else dropped."""
    for parent in (f"00-{TRACE}-b7ad6b7169203331-01", f"42-{TRACE}-b7ad6b7169203331-01-future"):
        job = await world.submitted(headers=RAW | {"traceparent": parent, "tracestate": "a=1,b=2"})
        assert (job.traceparent, job.tracestate) == (parent, "a=1,b=2")
    for bad in (f"ff-{TRACE}-b7ad6b7169203331-01", f"00-{'0' * 32}-b7ad6b7169203331-01", "junk"):
        job = await world.submitted(headers=RAW | {"traceparent": bad, "tracestate": "a=1"})
        assert (job.traceparent, job.tracestate) == (None, None)


# ------------------------------------------------------------------------------------------------------------- wait


async def test_prefer_wait(world, nursery):
    """Under Prefer: wait a job that finishes in time is answered with 200 and its result."""

    async def run() -> None:
        await world.store.jobs.wait_claimable(PADDLE)
        claimed = await claim_one(world.store, PADDLE)
        await trio.sleep(5)
        await complete(world.store, claimed)

    nursery.start_soon(run)
    reply = await world.submit(headers=RAW | {"prefer": "respond-async, wait=10"})
    assert reply.status == 200
    assert reply.headers["Preference-Applied"] == "respond-async, wait=10"
    assert "Retry-After" not in reply.headers
    job = content(reply)
    assert (job["status"], job["result"]) == ("completed", {"text": "ok"})


async def test_prefer_wait_runs_out(world):
    """A job that does not finish in time is answered with 202 after at most 60 s."""
    began = trio.current_time()
    reply = await world.submit(headers=RAW | {"prefer": "wait=600"})
    assert (reply.status, content(reply)["status"]) == (202, "queued")
    assert reply.headers["Preference-Applied"] == "wait=60"
    assert trio.current_time() - began == 60


async def test_hanging_up_does_not_cancel(world):
    """A client that hangs up while it waits ends its wait; the job runs and its result can be read (AX-1)."""
    with trio.move_on_after(1):
        await world.submit(headers=RAW | {"prefer": "wait=30"})
    done = await world.run_next()
    assert await body_of(await world.result(done.id)) == b'{"text": "ok"}'


async def test_client_gone(world):
    """A client that breaks off its upload leaves nothing behind (GW-16)."""
    for headers, body in ((RAW, b"%PDF"), (FORM | {"x-model": "paddleocr"}, BODY[:80]), (JSON, b'{"input":')):
        with pytest.raises(ClientGone):
            await world.submit(gone(body), headers)
    assert world.is_empty()
    assert world.counted("client_gone") == 3
