"""What events quote: caps, hashes, redaction."""

import hashlib

import msgspec
import pytest
from audit_fakes import FakePayloads, bodies, make_job, origin, unpacked

from gateway.audit.bodies import REDACT_BYTES
from gateway.audit.event import job_event
from gateway.audit.redact import parse_pointer
from store.errors import StoreUnavailable

JSON = "application/json; charset=utf-8"


@pytest.fixture
def payloads() -> FakePayloads:
    return FakePayloads()


async def quoted(payloads: FakePayloads, job, **policy) -> dict:
    """The event of a job as it is written."""
    made = bodies(payloads, **policy)
    loaded = await made.load(job_event(job, origin()), job.payload, job.result, again=False)
    (line,) = made.encode([loaded])
    return msgspec.json.decode(line.data)


@pytest.mark.parametrize(
    ("size", "truncated"), [(0, False), (19, False), (20, False), (21, True), (500, True)]
)
async def test_body_is_cut_at_the_cap(payloads, size, truncated) -> None:
    """Below and at the cap a body is whole; above it is cut there and says so (GW-13)."""
    data = bytes(n % 251 for n in range(size))
    event = await quoted(payloads, make_job(payloads.keep("p", data)), cap_bytes=20)
    request = event["request"]
    assert unpacked(request) == data[:20]
    assert request["body_truncated"] is truncated
    assert request["bytes"] == size
    assert request["full_body_sha256"] == hashlib.sha256(data).hexdigest()


async def test_only_what_is_quoted_is_read(payloads) -> None:
    """A document of any size costs the cap and at most one chunk."""
    await quoted(payloads, make_job(payloads.keep("p", b"x" * 100_000)), cap_bytes=20)
    assert payloads.read_bytes <= 20 + payloads.chunk


async def test_multipart_quotes_the_file_part(payloads) -> None:
    """Of a multipart body the file part is quoted, wherever chunks begin."""
    part = {"offset": 10, "length": 9, "part_type": "image/png"}
    payload = payloads.keep("p", b"-boundary-" + b"PNG-BYTES" + b"--end", "multipart/form-data", **part)
    request = (await quoted(payloads, make_job(payload)))["request"]
    assert unpacked(request) == b"PNG-BYTES"
    assert request["body_truncated"] is False


async def test_response_is_the_result(payloads) -> None:
    """The result of a completed job is quoted verbatim."""
    job = make_job(payloads.keep("p", b"doc"), payloads.keep("r", b'{"a": 1}', JSON))
    assert unpacked((await quoted(payloads, job))["response"]) == b'{"a": 1}'


async def test_bodies_that_are_not_captured_are_still_described(payloads) -> None:
    """With capture [] no byte is read or stored; size and hash of the whole stay."""
    job = make_job(payloads.keep("p", b"doc"), payloads.keep("r", b"{}", JSON))
    event = await quoted(payloads, job, request=False, response=False)
    assert (event["request"]["body"], event["response"]["body"]) == (None, None)
    assert (event["request"]["bytes"], event["request"]["body_truncated"]) == (3, False)
    assert payloads.read_bytes == 0


async def test_redacted_fields_are_blank_and_the_hash_is_of_the_original(payloads) -> None:
    """Pointers blank fields of JSON bodies; bytes and hash describe the body as it was."""
    data = b'{"user": {"name": "Ann", "id": 7}, "rows": [{"iban": "X"}, {"iban": "Y"}], "a/b": 1}'
    pointers = tuple(map(parse_pointer, ["/user/name", "/rows/1/iban", "/a~1b", "/not/there", "/rows/9"]))
    request = (await quoted(payloads, make_job(payloads.keep("p", data, JSON)), redact=pointers))["request"]
    assert msgspec.json.decode(unpacked(request)) == {
        "user": {"name": None, "id": 7},
        "rows": [{"iban": "X"}, {"iban": None}],
        "a/b": None,
    }
    assert request["full_body_sha256"] == hashlib.sha256(data).hexdigest()
    assert (request["bytes"], request["body_truncated"]) == (len(data), False)


async def test_member_that_stands_twice_does_not_slip_through(payloads) -> None:
    """A redacted body is written from its parsed form, so what a pointer cannot see is gone."""
    data = b'{"user": {"name": "Ann"}, "user": {}}'
    pointers = (parse_pointer("/user/name"),)
    request = (await quoted(payloads, make_job(payloads.keep("p", data, JSON)), redact=pointers))["request"]
    assert b"Ann" not in unpacked(request)


async def test_json_above_the_cap_is_redacted_before_it_is_cut(payloads) -> None:
    """The cap does not hide a field from its pointer."""
    data = b'{"name": "Ann", "text": "' + b"x" * 100 + b'"}'
    pointers = (parse_pointer("/name"),)
    job = make_job(payloads.keep("p", data, JSON))
    request = (await quoted(payloads, job, redact=pointers, cap_bytes=40))["request"]
    assert unpacked(request) == b'{"name":null,"text":"' + b"x" * 19
    assert request["body_truncated"] is True


@pytest.mark.parametrize(
    "data", [b'{"name": "Ann"', b"\xff\xfe", b"[" * 100_000, b'{"name": "Ann"}' + b" " * REDACT_BYTES]
)
async def test_json_that_cannot_be_redacted_is_left_out(payloads, data) -> None:
    """Broken or too large JSON is left out whole rather than quoted unredacted."""
    payloads.chunk = 256 * 1024
    job = make_job(payloads.keep("p", data, JSON))
    request = (await quoted(payloads, job, redact=(parse_pointer("/name"),)))["request"]
    assert (request["body"], request["body_truncated"], request["bytes"]) == (None, True, len(data))


async def test_bodies_that_are_not_json_are_not_redacted(payloads) -> None:
    """Pointers concern JSON alone."""
    job = make_job(payloads.keep("p", b'{"name": "Ann"}', "text/plain"))
    request = (await quoted(payloads, job, redact=(parse_pointer("/name"),)))["request"]
    assert unpacked(request) == b'{"name": "Ann"}'


async def test_missing_blob_and_store_that_is_away_are_told_apart(payloads) -> None:
    """A blob that is gone is a KeyError; a store that gives no answer says so."""
    job = make_job(payloads.keep("p", b"doc"))
    payloads.away = True
    with pytest.raises(StoreUnavailable):
        await quoted(payloads, job)
    payloads.away = False
    payloads.held.clear()
    with pytest.raises(KeyError):
        await quoted(payloads, job)


@pytest.mark.parametrize("text", ["name", "/a~2b", "/a~", "#/a"])
def test_pointer_that_is_none_is_refused(text) -> None:
    """A malformed pointer is refused by name."""
    with pytest.raises(ValueError, match="JSON pointer"):
        parse_pointer(text)


def test_pointer_of_the_whole_document_and_escapes() -> None:
    """The empty pointer is the document; ~01 is ~1, not /."""
    assert parse_pointer("") == ()
    assert parse_pointer("/~01/") == ("~1", "")
