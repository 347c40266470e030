"""The bodies of a submit, each read to its end: options are collected, documents are stored and hashed.

    raw         the body is the document
    multipart   the document is its one file part, stored with the body as it came; or a group, of several (`form_body`)
    json        the document is the member `input`, as the bytes that stood in the body; or a group: `fanout`

Every byte of what is stored goes into drafts, which are those of the payload store, or nothing at all when a replay is
compared. The documents that stand inside `fanout` are stored once the group has been checked.
A reader is found by content type, once; `READERS` is the table.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from gateway.http.json_fault import json_fault
from gateway.http.submit.children import GroupAsk
from gateway.http.submit.digest import STEP_BYTES, Digest
from gateway.http.submit.fanout import FANOUT, read_fanout
from gateway.http.submit.form_body import read_form
from gateway.http.submit.intake import Intake
from gateway.http.submit.nesting import Nesting
from gateway.http.submit.options import NOT_OFFERED, OPTIONS, OptionSet, pointer, unknown_field
from gateway.http.submit.upload import FORM, JSON, Document, Upload, refuse_empty
from gateway.problems import ApiError, invalid

Reader = Callable[[Upload, AsyncIterator[bytes], Intake], Awaitable[Document | GroupAsk]]
INPUT: Final = "input"
MAX_MEMBERS: Final = 1000
"""Of a JSON body; there are some ten options."""


async def read_body(upload: Upload, chunks: AsyncIterator[bytes], intake: Intake) -> Document | GroupAsk:
    """Read a body that may hold options to its end.

    Args:
        upload: what is read; gets the options of the body.
        chunks: of its body.
        intake: gives drafts for what is to be stored.

    Raises:
        ApiError: INVALID_REQUEST, PAYLOAD_TOO_LARGE, REQUEST_TIMEOUT.
        ClientGone: the client broke off.
        StorageFull, StoreUnavailable: documents of a group could not be staged.
    """
    return await READERS[upload.media_type](upload, chunks, intake)


async def read_raw(upload: Upload, chunks: AsyncIterator[bytes], intake: Intake) -> Document:
    """The body is the document."""
    digest, draft = Digest(), intake.open()
    async for chunk in chunks:
        await digest.update(chunk)
        await draft.write(chunk)
    refuse_empty(digest.size)
    return Document(draft=draft, sha256=await digest.hexdigest(), content_type=upload.content_type)


async def read_json(upload: Upload, chunks: AsyncIterator[bytes], intake: Intake) -> Document | GroupAsk:
    """The document is the member `input` of the body, which is held whole; or it is a group."""
    body = bytearray()
    nesting = Nesting("the body", max_members=MAX_MEMBERS)
    async for chunk in chunks:
        nesting.feed(chunk)
        body += chunk
    nesting.finish()
    members = _members(body)
    if len(members) != nesting.members:
        raise ApiError("INVALID_REQUEST", "the body names a member twice")
    _collect_options(members, upload.options)
    if FANOUT in members:
        return await read_fanout(
            members[FANOUT], upload.options, max_children=upload.jobs.max_children, now=upload.now
        )
    document, draft, digest = memoryview(members[INPUT]), intake.open(), Digest()
    for start in range(0, len(document), STEP_BYTES):
        piece = bytes(document[start : start + STEP_BYTES])
        await digest.update(piece)
        await draft.write(piece)
    taken = members[INPUT]
    return Document(draft=draft, sha256=await digest.hexdigest(), content_type=JSON, input=taken)


def _members(body: bytearray) -> dict[str, Raw]:
    try:
        return msgspec.json.decode(body, type=dict[str, Raw])
    except msgspec.DecodeError as error:
        raise ApiError("INVALID_REQUEST", f"the body is no JSON object: {json_fault(body, error)}") from error


def _collect_options(members: Mapping[str, Raw], options: OptionSet) -> None:
    """Take the options out of a body's members; exactly one of the others must say what it is."""
    for name, raw in members.items():
        where = pointer(name)
        if name in OPTIONS or name in NOT_OFFERED:
            options.add_json(name, raw, where)
        elif name not in {INPUT, FANOUT}:
            raise unknown_field(name, where, also=[INPUT, FANOUT])
    if INPUT in members and FANOUT in members:
        raise invalid(f"/{FANOUT}", f"expected one of {INPUT} and {FANOUT}; both are given")
    if INPUT not in members and FANOUT not in members:
        raise invalid(f"/{INPUT}", f"missing: expected the JSON that the upstream receives, or {FANOUT}")


READERS: Final[Mapping[str, Reader]] = {
    FORM: read_form,
    JSON: read_json,
}
"""By media type; every other body is raw."""
