"""POST /jobs refused: the code, the reason, and that nothing is left."""

import msgspec
import pytest
import trio
from api_world import CONFIG, JSON, RAW, Chunks, content, open_world
from test_api_form import FILE, MAX_OTHER_BYTES, TYPE, field, form, part

from gateway.drain import Draining
from gateway.problems import ApiError
from store.errors import QueueFull, StorageFull, StoreUnavailable, TenantQueueFull, UploadsFull
from store.policy import StorePolicy, TenantLimits, Tenants

FORM = {"content-type": TYPE, "x-model": "paddleocr"}


async def refused(world, *args, code="INVALID_REQUEST", **more) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await world.submit(*args, **more)
    assert caught.value.code == code
    assert world.is_empty()
    return caught.value


@pytest.mark.parametrize(
    ("headers", "query", "pointer", "words"),
    [
        ({"x-priority": "urgent"}, [], "header:x-priority", "interactive, batch or an integer from 0 to 100"),
        ({"x-priority": "101"}, [], "header:x-priority", "from 0 to 100"),
        ({"x-priority": "-1"}, [], "header:x-priority", "from 0 to 100"),
        ({"x-priority": "9" * 5000}, [], "header:x-priority", "from 0 to 100"),
        ({"x-max-attempts": "0"}, [], "header:x-max-attempts", "an integer from 1 to 20"),
        ({"x-max-attempts": "21"}, [], "header:x-max-attempts", "an integer from 1 to 20"),
        ({"x-run-at": "tomorrow"}, [], "header:x-run-at", "an RFC 3339 time"),
        ({"x-run-at": "2030-01-01T00:00:00"}, [], "header:x-run-at", "time zone"),
        (
            {"x-callback-url": "ftp://a"},
            [],
            "header:x-callback-url",
            "an https URL of at most 2048 characters",
        ),
        ({"x-doc-pages": "0"}, [], "header:x-doc-pages", "an integer from 1"),
        ({"x-doc-pages": "two"}, [], "header:x-doc-pages", "an integer from 1"),
        ({"x-surface": "x" * 257}, [], "header:x-surface", "at most 256"),
        ({"idempotency-key": "a b"}, [], "header:idempotency-key", "1-255 visible"),
        ({"idempotency-key": "x" * 256}, [], "header:idempotency-key", "1-255 visible"),
        ({"idempotency-key": '""'}, [], "header:idempotency-key", "1-255 visible"),
        ({"idempotency-key": ""}, [], "header:idempotency-key", "1-255 visible"),
        ({}, [("params", "[1]")], "query:params", "a JSON object"),
        ({}, [("params", "{")], "query:params", "a JSON object"),
        ({}, [("params", '{"a": NaN}')], "query:params", "a JSON object"),
        ({}, [("params", '{"a": 18446744073709551616}')], "query:params", "64 bits"),
        ({}, [("metadata", '{"a": "' + "x" * 4096 + '"}')], "query:metadata", "at most 4096 bytes"),
        ({}, [("result_ttl_s", "0")], "query:result_ttl_s", "a number of seconds > 0"),
        ({}, [("result_ttl_s", "nan")], "query:result_ttl_s", "a number of seconds > 0"),
        ({}, [("after", "")], "query:after", "ids of at most 100 jobs"),
        ({}, [("after", "job_1,,job_2")], "query:after", "ids of at most 100 jobs"),
        ({}, [("after", '["job_1", 2]')], "query:after", "ids of at most 100 jobs"),
        ({}, [("after", '["job_1"')], "query:after", "ids of at most 100 jobs"),
        ({}, [("after", ",".join(["job_1"] * 101))], "query:after", "ids of at most 100 jobs"),
        ({}, [("after", "job_1"), ("after", "job_2")], "query:after", "given twice"),
        ({}, [("steps", "[]")], "query:steps", "not offered by this release"),
        ({}, [("prioritty", "5")], "query:prioritty", "did you mean 'priority'?"),
        ({}, [("model", "labels")], "query:model", "given twice, and differently at header:x-model"),
        ({}, [("priority", "1"), ("priority", "2")], "query:priority", "given twice"),
    ],
)
async def test_head(world, headers, query, pointer, words):
    """A bad option is named with its place and what was expected, before the body is read (AT-15)."""
    body = Chunks([b"%PDF"])
    error = await refused(world, body, RAW | headers, query=query)
    assert error.errors[0].pointer == pointer
    assert words in error.errors[0].detail
    assert body.read == 0


async def test_same_option_twice_with_the_same_value(world):
    """An option said twice alike is no contradiction."""
    job = await world.submitted(headers=RAW | {"x-priority": "batch"}, query=[("priority", "50")])
    assert job.priority == 50


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no JSON object"),
        (b"[]", "no JSON object"),
        (b'{"input": NaN}', "no JSON object"),
        (b'{"input": [1, -Infinity]}', "no JSON object"),
        (b'{"input": {"a": 1}', "no JSON object"),
        (b'{"input": "\\ud83d"}', "half of a surrogate pair"),
        (b'{"input": "\xff"}', "not UTF-8"),
        (b'{"input": "\xc3', "not UTF-8"),
        (b'{"input": ' + b"[" * 200 + b"]" * 200 + b"}", "nested beyond 200 levels"),
        (b'{"params": ' + b'{"a":' * 100_000, "nested beyond 200 levels"),
        (b"{}", "/input: missing"),
        (b'{"input": 1, "modell": "paddleocr"}', "/modell: unknown field; did you mean 'model'?"),
        (b'{"input": 1, "a/b~": 1}', "/a~1b~0: unknown field"),
        (b'{"input": 1, "' + b"x" * 1_000_000 + b'": 1}', f"/{'x' * 100}: unknown field"),
        (b'{"inputs": 1}', "/inputs: unknown field; did you mean 'input'?"),
        (b'{"input": 1, "fanout": {}}', "/fanout: expected one of input and fanout; both are given"),
        (b'{"steps": []}', "/steps: steps is not offered by this release"),
        (b'{"input": 1, "max_attempts": "3"}', "/max_attempts: expected an integer from 1 to 20"),
        (b'{"input": 1, "max_attempts": true}', "/max_attempts: expected an integer from 1 to 20"),
        (b'{"input": 1, "params": "x"}', "/params: expected a JSON object"),
        (b'{"input": 1, "run_at": 5}', "/run_at: expected an RFC 3339 time"),
        (b'{"input": 1, "run_at": "9999-12-31T23:59:59-23:59"}', "/run_at: expected an RFC 3339 time"),
        (b'{"input": 1, "run_at": "0001-01-01T00:00:00+23:59"}', "/run_at: expected an RFC 3339 time"),
    ],
)
async def test_json(world, body, words):
    """A bad JSON body is refused with its reason; depth is never a RecursionError (AT-15)."""
    error = await refused(world, body, JSON | {"x-model": "paddleocr"})
    assert words in error.detail


async def test_depth_that_is_allowed(world):
    """200 levels in all are taken, and arrive as they were."""
    document = b"[" * 199 + b"]" * 199
    job = await world.submitted(b'{"model": "paddleocr", "input": ' + document + b"}", JSON)
    assert await world.document(job) == document


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (form(part(FILE, b"")), "the document is empty"),
        (form(part(FILE, b"1"), part(FILE, b"2")), "two files"),
        (form(field("priority", b"1")), "no file"),
        (form(part(FILE, b"1"))[:-8], "malformed"),
        (form(field("priority", b"x"), part(FILE, b"1")), "/priority: expected interactive"),
        (form(field("model", b"labels"), part(FILE, b"1")), "given twice"),
        (form(field("metadata", b"\xff"), part(FILE, b"1")), "expected UTF-8"),
        (form(field("steps", b"[]"), part(FILE, b"1")), "not offered"),
        (form(field("priorty", b"1"), part(FILE, b"1")), "unknown field; did you mean 'priority'?"),
        (form(field("params", b"[" * 60_000), part(FILE, b"1")), "nested beyond"),
    ],
)
async def test_form(world, body, words):
    """A bad form is refused with its reason, and nothing of it is kept (GW-9)."""
    error = await refused(world, body, FORM)
    assert words in error.detail


async def test_empty(world):
    """An empty document is refused."""
    assert "empty" in (await refused(world, b"")).detail


@pytest.mark.parametrize(
    ("headers", "code", "words"),
    [
        ({"x-model": "nope"}, "MODEL_UNKNOWN", "no model 'nope'"),
        ({"x-model": "qwen3"}, "MODEL_UNKNOWN", "/v1"),
        ({"x-model": "labels", "x-operation": "ocr"}, "INVALID_REQUEST", "does not serve operation"),
        ({"x-operation": "ocr"}, "INVALID_REQUEST", "formreader, paddleocr"),
        ({"x-operation": "dance"}, "INVALID_REQUEST", "no model serves"),
        ({}, "INVALID_REQUEST", "expected `model` or `operation`"),
        ({"x-model": "cloudocr"}, "EXTERNAL_UPSTREAM_FORBIDDEN", "external"),
    ],
)
async def test_route(world, headers, code, words):
    """What leads to no upstream is refused before the body is read (GW-2)."""
    body = Chunks([b"%PDF"])
    error = await refused(world, body, {"content-type": "application/pdf"} | headers, code=code)
    assert words in error.detail
    assert body.read == 0


async def test_route_of_a_body(world):
    """The model may stand in the body; then it is refused after reading, and nothing is left (GW-2)."""
    body = msgspec.json.encode({"input": 1, "model": "nope"})
    await refused(world, body, JSON, code="MODEL_UNKNOWN")
    body = form(part(FILE, b"1"), field("model", b"cloudocr"))
    await refused(world, body, {"content-type": TYPE}, code="EXTERNAL_UPSTREAM_FORBIDDEN")
    assert world.refusals.events[0].upstream == "cloud"


async def test_foreign_model(world):
    """A model outside the tenant's is unknown to it (GW-12)."""
    error = await refused(world, tenant="picky", code="MODEL_UNKNOWN")
    assert "no model 'paddleocr'" in error.detail


async def test_external_is_audited(world):
    """The refusal of an external upstream leaves one audit event and no job (GW-2)."""
    headers = {"x-model": "cloudocr", "x-surface": "portal", "x-user-id": "u", "x-request-id": "r-1"}
    await refused(world, b"%PDF", headers, code="EXTERNAL_UPSTREAM_FORBIDDEN")
    (event,) = world.refusals.events
    assert (event.error_code, event.http_status) == ("EXTERNAL_UPSTREAM_FORBIDDEN", 403)
    assert (event.upstream, event.model, event.operation) == ("cloud", "cloudocr", "ocr")
    assert (event.tenant, event.surface, event.user_id, event.trace_id) == ("acme", "portal", "u", "r-1")


async def test_external_is_allowed_by_the_flag():
    """With the flag an external upstream takes jobs (GW-2)."""
    async with open_world(config="allow_external_upstreams: true" + CONFIG) as world:
        job = await world.submitted(headers={"x-model": "cloudocr"})
        assert job.upstream == "cloud"
        assert not world.refusals.events


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip"])
async def test_encoding(world, encoding):
    """A Content-Encoding other than identity is 415."""
    await refused(world, b"%PDF", RAW | {"content-encoding": encoding}, code="UNSUPPORTED_MEDIA_TYPE")


async def test_identity_is_no_encoding(world):
    """identity is how bodies come."""
    assert (await world.submit(headers=RAW | {"content-encoding": "Identity"})).status == 202


@pytest.mark.parametrize(
    ("headers", "limit"),
    [(RAW, 3_000_000), (JSON, 2_000_000), (FORM, 5_000_000 + MAX_OTHER_BYTES + 1199 * 1024)],
)
async def test_announced_too_large(world, headers, limit):
    """A Content-Length over the bound is 413 without a byte read; that of a form may be a group's (GW-16)."""
    body = Chunks([b"x"])
    await refused(world, body, headers | {"content-length": str(limit + 1)}, code="PAYLOAD_TOO_LARGE")
    assert body.read == 0


@pytest.mark.parametrize("headers", [RAW, JSON, FORM])
async def test_too_large_while_reading(world, headers):
    """A chunked body is refused as soon as it is over the bound, not at its end (GW-16)."""
    start = form(part(FILE, b""))[:-11] if headers is FORM else b""
    body = Chunks([start, *[b"1" * 100_000] * 1000])
    await refused(world, body, headers, code="PAYLOAD_TOO_LARGE")
    assert body.read < 3_200_000


async def test_full_queue():
    """16 submits at a bound of 8 give exactly 8 jobs; a refused one leaves nothing (AT-4, AT-5)."""
    tenants = Tenants(default=TenantLimits(max_queued=100))
    async with open_world(StorePolicy(max_queued=8, tenants=tenants)) as world:
        outcomes = []

        async def one(key: str) -> None:
            try:
                outcomes.append((await world.submit(headers=RAW | {"idempotency-key": key})).status)
            except QueueFull as error:
                outcomes.append(str(error))

        async with trio.open_nursery() as nursery:
            for number in range(16):
                nursery.start_soon(one, str(number))
        counts = await world.store.jobs.counts()
        assert outcomes.count(202) == 8 == counts.depth
        assert outcomes.count("queue full (max 8)") == 8
        assert counts.stored_bytes == 8 * 4
        assert world.counted("queue_full") == 8
        assert len(world.store._ledger.keys) == 8


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        (StorePolicy(max_queued=0), QueueFull),
        (StorePolicy(max_queued=-1), QueueFull),
        (StorePolicy(tenants=Tenants(default=TenantLimits(max_queued=0))), TenantQueueFull),
        (StorePolicy(max_uploads=0), UploadsFull),
        (StorePolicy(max_stored_bytes=2), StorageFull),
    ],
)
async def test_no_room(policy, kind):
    """No room is answered before the first body byte, and nothing is left (AT-5, GW-16)."""
    async with open_world(policy) as world:
        body = Chunks([b"%PDF"])
        with pytest.raises(kind):
            await world.submit(body, RAW | {"content-length": "4"})
        assert world.is_empty()
        assert body.read == 0


async def test_full_between_look_and_create(world):
    """The exact check is create's: a queue that fills up while the body comes leaves nothing of it (AT-5)."""

    async def create(submission, draft):
        await trio.lowlevel.checkpoint()
        raise QueueFull(8, 8)

    world.store.jobs.create = create
    with pytest.raises(QueueFull):
        await world.submit(headers=RAW | {"idempotency-key": "k"})
    assert world.is_empty()


async def test_closed_gate(world):
    """While draining a submit is refused before anything is read, and none slips in after the gate closed (GW-10)."""
    world.services.gate.begin("test")
    assert (await world.submit()).status == 202  # readiness is down, everything is still accepted
    world.services.gate.close()
    body = Chunks([b"%PDF"])
    with pytest.raises(Draining):
        await world.submit(body)
    assert body.read == 0


async def test_gate_closes_during_the_upload(world):
    """A gate that closes while the body comes refuses the job, and nothing is left (GW-10)."""

    class Closing(Chunks):
        async def __anext__(self) -> bytes:
            world.services.gate.close()
            return await super().__anext__()

    with pytest.raises(Draining):
        await world.submit(Closing([b"%PDF"]))
    assert world.is_empty()
    assert world.counted("draining") == 1


async def test_unknown_create(world):
    """A create without an answer names the job that may exist."""

    async def create(submission, draft):
        await trio.lowlevel.checkpoint()
        raise StoreUnavailable("no answer", outcome="unknown")

    world.store.jobs.create = create
    with pytest.raises(ApiError) as caught:
        await world.submit()
    assert caught.value.code == "STORE_UNAVAILABLE"
    assert caught.value.members["job_id"].startswith("job_")


async def test_store_lost_after_create(world):
    """Once the job exists its 202 is sent, also when the store is away from then on."""

    async def get(job_id):
        await trio.lowlevel.checkpoint()
        raise StoreUnavailable("away", outcome="not_done")

    world.store.jobs.get = get
    reply = await world.submit(headers=RAW | {"prefer": "wait=5"})
    assert (reply.status, content(reply)["status"]) == (202, "queued")
