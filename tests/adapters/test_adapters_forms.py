"""The three body forms, byte for byte."""

import base64
import json

import pytest
from msgspec.structs import replace

from adapters.forms import base64_json, multipart, raw
from adapters.testing.doubles import MemoryDocument, call_for

DATA = bytes(range(256)) * 3


async def sent(form):
    """What a form sends; its announced size is true, also the second time it is read."""
    for _ in range(2):
        async with form.body.open() as chunks:
            data = b"".join([chunk async for chunk in chunks])
        assert form.body.size == len(data)
    return data


def call_with(data=DATA, content_type="image/png", filename=None, chunk_bytes=64 * 1024, **fields):
    document = MemoryDocument(data, content_type, filename, chunk_bytes=chunk_bytes)
    return replace(call_for("http://host", document), **fields)


async def test_raw_is_the_document():
    """raw sends the document's bytes under its content type."""
    form = raw(call_with())
    assert await sent(form) == DATA
    assert (form.content_type, form.query) == ("image/png", [])


def test_raw_params_are_the_query():
    """raw puts params into the query: texts as they are, lists repeated, other values as JSON, null left out."""
    params = {"lang": "de", "pages": [1, 2], "deep": {"a": 1}, "on": True, "scale": 1.5, "none": None}
    assert raw(call_with(params=params)).query == [
        ("lang", "de"),
        ("pages", "1"),
        ("pages", "2"),
        ("deep", '{"a":1}'),
        ("on", "true"),
        ("scale", "1.5"),
    ]


@pytest.mark.parametrize("form_of", [raw, multipart, base64_json])
async def test_json_input_goes_as_it_came(form_of):
    """A JSON input is sent as the bytes that came, in every form, with params in the query (GW-9)."""
    data = b'{ "file" : "http://host/a.pdf" }'
    call = call_with(data, "application/json; charset=utf-8", is_json_input=True, params={"a": 1})
    form = form_of(call, "file")
    assert await sent(form) == data
    assert form.content_type == "application/json; charset=utf-8"
    assert form.query == [("a", "1")]


async def test_multipart_passes_through():
    """A client's multipart body is sent byte-identical under its own boundary, and params are not added (GW-9)."""
    body = b'preamble\r\n--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--\r\nepilogue'
    content_type = 'multipart/form-data; boundary="b"; charset=utf-8'
    form = multipart(call_with(body=MemoryDocument(body, content_type), params={"a": 1}), "file")
    assert await sent(form) == body
    assert form.content_type == content_type
    assert form.query == ()


async def test_multipart_wraps_a_raw_document():
    """A raw document becomes a part after the params, byte for byte."""
    call = call_with(filename="Übergröße.png", params={"lang": "de", "pages": [1, 2]})
    form = multipart(call, "image_file")
    boundary = form.content_type.removeprefix("multipart/form-data; boundary=")
    assert len(boundary) == 32
    expected = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="lang"\r\n\r\nde\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="pages"\r\n\r\n1\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="pages"\r\n\r\n2\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="image_file"; filename="Übergröße.png"\r\n'
        "Content-Type: image/png\r\n\r\n"
    ).encode()
    assert await sent(form) == expected + DATA + f"\r\n--{boundary}--\r\n".encode()


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        (None, "document"),
        ('a"b.pdf', "a%22b.pdf"),
        ("a\r\nX: 1.pdf", "a%0D%0AX: 1.pdf"),
        ("文書 1.pdf", "文書 1.pdf"),
        ("a%22b.pdf", "a%22b.pdf"),
    ],
)
async def test_multipart_file_names(filename, expected):
    """File names are UTF-8, with quotes and line ends escaped; a nameless document gets a name (GW-9)."""
    body = await sent(multipart(call_with(filename=filename), "file"))
    assert f'name="file"; filename="{expected}"\r\n'.encode() in body


def test_multipart_boundaries_differ():
    """Each wrapping has a boundary of its own, 128 random bits."""
    assert multipart(call_with(), "file").content_type != multipart(call_with(), "file").content_type


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 100, 768])
@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 5, 1000])
async def test_base64_of_any_chunking(size, chunk_bytes):
    """Base64 is right however the document is cut into chunks."""
    form = base64_json(call_with(DATA[:size], chunk_bytes=chunk_bytes), "image")
    expected = b'{"image":"' + base64.b64encode(DATA[:size]) + b'"}'
    assert await sent(form) == expected
    assert form.content_type == "application/json"


@pytest.mark.parametrize(
    ("content_type", "file_type"),
    [("application/pdf", 0), ("Application/PDF; v=1", 0), ("image/png", 1), ("application/octet-stream", 1)],
)
async def test_paddlex_file_type(content_type, file_type):
    """With the field `file`, `fileType` is 0 for a PDF and 1 for anything else."""
    body = await sent(base64_json(call_with(b"abc", content_type, params={"visualize": False}), "file"))
    assert body == b'{"file":"YWJj","fileType":%d,"visualize":false}' % file_type


async def test_paddlex_file_type_of_the_client():
    """A `fileType` among the params wins."""
    body = await sent(base64_json(call_with(b"abc", "image/png", params={"fileType": 0}), "file"))
    assert body == b'{"file":"YWJj","fileType":0}'


async def test_paddlehub_images():
    """With the field `images` the value is a list of one, and there is no `fileType`."""
    body = await sent(base64_json(call_with(b"abc", params={"a": [1]}), "images"))
    assert body == b'{"images":["YWJj"],"a":[1]}'


@pytest.mark.parametrize("form_of", [multipart, base64_json])
async def test_document_wins_over_a_param_of_its_name(form_of):
    """A param cannot replace the document: PaddleX would fetch the URL that stands there."""
    body = await sent(form_of(call_with(b"abc", params={"file": "http://169.254.169.254/"}), "file"))
    assert b"169.254" not in body


async def test_odd_field_names():
    """Names are escaped as their form demands."""
    body = await sent(base64_json(call_with(b"abc", params={'q"': 'ü"'}), 'f"'))
    assert json.loads(body) == {'f"': "YWJj", 'q"': 'ü"'}
    body = await sent(multipart(call_with(b"abc", params={'q"': "1"}), 'f"'))
    assert b'name="q%22"' in body
    assert b'name="f%22"' in body


@pytest.mark.parametrize("form_of", [raw, multipart, base64_json])
async def test_client_multipart_in_other_forms(form_of):
    """Of a multipart submission, raw and base64-json send the file alone."""
    call = call_with(b"abc", body=MemoryDocument(b"the whole body", "multipart/form-data; boundary=b"))
    body = await sent(form_of(call, "image"))
    assert body == {raw: b"abc", multipart: b"the whole body", base64_json: b'{"image":"YWJj"}'}[form_of]
