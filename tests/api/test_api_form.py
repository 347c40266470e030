"""multipart/form-data without I/O."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.submit.form import MAX_OTHER_BYTES, Form
from gateway.problems import ApiError

BOUNDARY = "xYz"
TYPE = f"multipart/form-data; boundary={BOUNDARY}"
FILE = 'form-data; name="file"; filename="a.pdf"'


def part(disposition: str, value: bytes, *headers: str) -> bytes:
    lines = [f"--{BOUNDARY}", f"Content-Disposition: {disposition}", *headers, "", ""]
    return "\r\n".join(lines).encode() + value + b"\r\n"


def field(name: str, value: bytes) -> bytes:
    return part(f'form-data; name="{name}"', value)


def form(*parts: bytes, epilogue: bytes = b"\r\n") -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--".encode() + epilogue


def parse(*chunks: bytes) -> tuple[Form, bytes]:
    parser = Form(TYPE, max_files=2)
    document = b"".join(piece for chunk in chunks for _, piece in parser.feed(chunk))
    parser.finish()
    return parser, document


TRICKY = b"\r\n\r\n--xY\r\n--xYz!\r\n\r\r\n--\r\n--x" + bytes(range(256)) + b"\r\n\r\n\r"
BODY = form(
    field("model", b"paddleocr"),
    field("note", b"\r\n\r\n--xY\r\n"),
    part(FILE, TRICKY.replace(b"--xYz!", b"-xYz!"), "Content-Type: application/pdf"),
    field("priority", b"7"),
)
DOCUMENT = TRICKY.replace(b"--xYz!", b"-xYz!")


def check(chunks):
    parser, document = parse(*chunks)
    assert document == DOCUMENT
    assert parser.fields == [("model", b"paddleocr"), ("note", b"\r\n\r\n--xY\r\n"), ("priority", b"7")]
    [file] = parser.files
    assert (file.filename, file.content_type, file.length) == ("a.pdf", "application/pdf", len(DOCUMENT))
    assert BODY[file.offset : file.offset + file.length] == DOCUMENT


@pytest.mark.parametrize("cut", range(1, len(BODY)))
def test_every_cut(cut):
    """Wherever two chunks meet, the file's place, its bytes and the fields are the same (GW-9)."""
    check([BODY[:cut], BODY[cut:]])


@given(st.lists(st.integers(0, len(BODY)), max_size=40))
def test_any_chunking(cuts):
    """However the body is cut, the file's place, its bytes and the fields are the same (GW-9)."""
    cuts = sorted(cuts)
    check([BODY[a:b] for a, b in zip([0, *cuts], [*cuts, len(BODY)], strict=True)])


def test_one_byte_at_a_time():
    """The smallest chunks give the same (GW-9)."""
    check([BODY[i : i + 1] for i in range(len(BODY))])


@given(st.binary(max_size=300), st.binary(max_size=60), st.integers(1, 50))
def test_any_content(document, value, step):
    """Any bytes but the delimiter itself pass through a file and a field unharmed (GW-9)."""
    delimiter = b"\r\n--" + BOUNDARY.encode()
    if delimiter in b"\r\n" + document + b"\r\n" or delimiter in b"\r\n" + value + b"\r\n":
        return
    body = form(field("a", value), part(FILE, document))
    parser, found = parse(*(body[i : i + step] for i in range(0, len(body), step)))
    assert found == document
    assert body[parser.files[0].offset :].startswith(document)
    assert parser.fields == [("a", value)]


@pytest.mark.parametrize("epilogue", [b"", b"\r\n", b"\r\nwhatever follows"])
@pytest.mark.parametrize("own_chunk", [True, False])
def test_epilogue(epilogue, own_chunk):
    """What follows the last boundary is ignored, also when it comes by itself."""
    body = form(part(FILE, b"doc"), epilogue=b"")
    chunks = [body, epilogue] if own_chunk else [body + epilogue]
    assert parse(*chunks)[1] == b"doc"


@pytest.mark.parametrize(
    ("disposition", "filename"),
    [
        ('form-data; name="f"; filename="Rechnung Größe.pdf"', "Rechnung Größe.pdf"),
        ('form-data; name="f"; filename="a%22b.pdf"', 'a"b.pdf'),
        ("form-data; name=f; filename=plain.pdf", "plain.pdf"),
        ("form-data; name=\"f\"; filename*=UTF-8''Gr%C3%B6%C3%9Fe.pdf", "Größe.pdf"),
        ('form-data; name="f"; filename=""', ""),
    ],
)
def test_file_names(disposition, filename):
    """File names are UTF-8, in the forms that clients write (GW-9)."""
    assert parse(form(part(disposition, b"doc")))[0].files[0].filename == filename


def test_type_of_a_part_without_one():
    """A file part that names no type is octets."""
    assert parse(form(part(FILE, b"doc")))[0].files[0].content_type == "application/octet-stream"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (form(part(FILE, b"1"), part(FILE, b"2"), part(FILE, b"3")), "more than 2 files"),
        (form(field("model", b"m")), "no file"),
        (form(part(FILE, b"1"), *[field("a", b"")] * 1001), "more than 1000 fields"),
        (form(part(FILE, b"1"))[:-6], "malformed"),
        (form(part(FILE, b"1"))[:40], "malformed"),
        (b"", "malformed"),
        (b"no form at all", "malformed"),
        (form(part(FILE, b"1")).replace(b"form-data", b"attachment"), "malformed"),
        (form(part("form-data; filename=x", b"1", "Content-Length: 5")), "malformed"),
        (b"--xYz\nContent-Disposition: form-data", "malformed"),
        (form(part(FILE, b"1", "X: " + "y" * 5000)), "malformed"),
    ],
)
def test_refused(body, why):
    """Too many files or fields, no file, an early end and a malformed body are refused, each with its reason (GW-9)."""
    with pytest.raises(ApiError, match=why) as refused:
        parse(*([body] if body else []))
    assert refused.value.code == "INVALID_REQUEST"


@pytest.mark.parametrize("content_type", ["multipart/form-data", "multipart/form-data; boundary=" + "x" * 71])
def test_boundary(content_type):
    """A boundary of 1-70 characters is needed."""
    with pytest.raises(ApiError, match="boundary"):
        Form(content_type, max_files=1)


@given(st.lists(st.binary(max_size=80), min_size=2, max_size=5), st.integers(1, 90))
def test_several_files(documents, step):
    """However a form with several files and fields between them is cut, each gets its bytes; one that begins is told
    even if it is empty (GW-9, GW-14)."""
    delimiter = b"\r\n--" + BOUNDARY.encode()
    if any(delimiter in b"\r\n" + document + b"\r\n" for document in documents):
        return
    parts = [
        each
        for n, document in enumerate(documents)
        for each in (part(FILE, document), field(f"f{n}", document))
    ]
    body = form(*parts)
    parser = Form(TYPE, max_files=5)
    found: dict[int, bytes] = {}
    for start in range(0, len(body), step):
        for file, piece in parser.feed(body[start : start + step]):
            found[id(file)] = found.get(id(file), b"") + piece
    files = parser.finish()
    assert [found[id(file)] for file in files] == documents
    assert [file.length for file in files] == [len(document) for document in documents]
    assert parser.fields == [(f"f{n}", document) for n, document in enumerate(documents)]


@pytest.mark.parametrize("where", ["before", "after", "preamble"])
def test_other_parts_are_bounded(where):
    """What is no file may have 1 MiB in all, wherever it stands, and is not collected beyond (GW-16)."""
    big = field("a", b"x" * MAX_OTHER_BYTES)
    parts = {"before": [big, part(FILE, b"1")], "after": [part(FILE, b"1"), big]}
    body = form(*parts.get(where, [b"x" * 2 * MAX_OTHER_BYTES + b"\r\n" + part(FILE, b"1")]))
    with pytest.raises(ApiError) as refused:
        parse(*(body[i : i + 65536] for i in range(0, len(body), 65536)))
    assert refused.value.code == "PAYLOAD_TOO_LARGE"


def test_the_file_is_not_bounded_here():
    """A file counts apart: it may be larger than everything else together may."""
    document = b"\r\n\r\n" * MAX_OTHER_BYTES
    body = form(part(FILE, document))
    parser, found = parse(*(body[i : i + 65536] for i in range(0, len(body), 65536)))
    assert found == document
    assert parser.files[0].length == len(document)
