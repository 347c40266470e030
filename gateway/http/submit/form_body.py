"""A form, read to its end: one document, or several that make a group.

Which of the two it is may be known at its end alone, for fields may follow the files. So the body is stored as it
comes, up to the end of its first file. If that was the only one and there is no `max_parallel`, the whole body is the
payload, and the file lies in it. If another file begins, the body so far is the first document, which lies in it as
before and is read alone; each file from then on is stored by itself.
"""

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.http.submit.children import Child, Faults, GroupAsk
from gateway.http.submit.digest import Digest
from gateway.http.submit.fanout import GROUP_MEMBERS
from gateway.http.submit.form import FilePart, Form
from gateway.http.submit.intake import NOWHERE, Intake
from gateway.http.submit.options import NOT_OFFERED, OPTIONS, OptionSet, pointer, unknown_field
from gateway.http.submit.upload import Document, Upload, refuse_empty
from gateway.problems import ApiError, invalid, shown
from store.api_payloads import Draft
from store.job import GroupPolicy

MAX_PARALLEL: Final = "max_parallel"
POLICY: Final = "policy"


async def read_form(upload: Upload, chunks: AsyncIterator[bytes], intake: Intake) -> Document | GroupAsk:
    """Read a form (see `documents.read_body`)."""
    return await _Reading(upload, intake).read(chunks)


class _Receiving(Struct):
    """The file that is being received."""

    part: FilePart
    draft: Draft
    digest: Digest


class _Reading:
    def __init__(self, upload: Upload, intake: Intake) -> None:
        self._upload = upload
        self._intake = intake
        self._form = Form(upload.content_type, max_files=upload.jobs.max_children)
        self._body = intake.open()
        """The body as it came, up to the end of its first file or of itself."""
        self._stored = 0
        self._file: _Receiving | None = None
        self._children: list[Child] = []
        """Of the files that are complete."""
        self._faults = Faults()

    async def read(self, chunks: AsyncIterator[bytes]) -> Document | GroupAsk:
        async for chunk in chunks:
            for part, piece in self._form.feed(chunk):
                await self._take(await self._receiving(part, chunk), piece)
            if not self._children:
                await self._body.write(chunk)
                self._stored += len(chunk)
        return await self._finished()

    async def _receiving(self, part: FilePart, chunk: bytes) -> _Receiving:
        """The file that bytes belong to. When it begins, the one before it is complete."""
        file = self._file
        if file is not None and file.part is part:
            return file
        if file is not None:
            if file.draft is self._body:
                await self._body.write(chunk[: max(0, file.part.offset + file.part.length - self._stored)])
            await self._complete(file)
        intake = self._intake if part.fault is None else NOWHERE
        draft = self._body if file is None else intake.open()
        self._file = _Receiving(part, draft, Digest())
        return self._file

    async def _take(self, file: _Receiving, piece: bytes) -> None:
        limit = self._upload.limits.max_body_bytes
        if file.digest.size + len(piece) > limit:
            raise ApiError("PAYLOAD_TOO_LARGE", f"the file is longer than the {limit} bytes accepted here")
        await file.digest.update(piece)
        if file.draft is not self._body:
            await file.draft.write(piece)

    async def _complete(self, file: _Receiving) -> None:
        """A file of a group has come to its end: it is a child."""
        where, part = f"/files/{len(self._children)}", file.part
        if part.fault is not None or not file.digest.size:
            self._faults.add(where, "the document is empty" if part.fault is None else part.fault.detail)
            self._children.append(Child(where=where))
            return
        inside = (part.offset, part.length, part.content_type) if file.draft is self._body else None
        blob = await file.draft.seal(
            sha256=await file.digest.hexdigest(),
            content_type=part.content_type,
            filename=part.filename,
            part=inside,
        )
        await self._intake.bring(blob, file.draft)
        self._children.append(Child(where=where, brought=blob))

    async def _finished(self) -> Document | GroupAsk:
        parts, fields, file = self._form.finish(), dict(self._form.fields), self._file
        if file is None:
            raise ValueError("a form that has files has a last one")
        if MAX_PARALLEL in fields:
            await self._complete(file)
            return self._group()
        if len(parts) > 1:
            names = ", ".join(shown(repr(part.filename)) for part in parts[:2])
            raise ApiError(
                "INVALID_REQUEST",
                f"the form has two files ({names}): a job takes one document; several are a group, with the field "
                f"{MAX_PARALLEL}",
            )
        if file.part.fault is not None:
            raise invalid(file.part.fault.pointer, file.part.fault.detail)
        refuse_empty(file.part.length)
        return Document(
            draft=self._body,
            sha256=await file.digest.hexdigest(),
            content_type=self._upload.content_type,
            filename=file.part.filename,
            part=file.part,
            other_fields=tuple(_sort_out(self._form.fields, self._upload.options)),
        )

    def _group(self) -> GroupAsk:
        given: dict[str, Any] = {}  # Any: the table rows know what they are
        for name, value in _sort_out(self._form.fields, self._upload.options):
            where = pointer(name)
            if name not in {MAX_PARALLEL, POLICY}:
                raise unknown_field(name, where, also=[MAX_PARALLEL, POLICY])
            decoded = self._member(name, _text(value, where), where)
            if given.setdefault(name, decoded) != decoded:
                raise invalid(where, f"{name} is given twice, and differently")
        return GroupAsk(
            children=self._children,
            max_parallel=given[MAX_PARALLEL] or 1,
            policy=given.get(POLICY) or GroupPolicy.COLLECT,
            faults=self._faults,
        )

    def _member(self, name: str, text: str, where: str) -> Any:  # Any: the table row knows what it is
        """The value of a field; None when it is a fault."""
        member = GROUP_MEMBERS[name]
        try:
            return msgspec.convert(text, member.kind, strict=False)
        except msgspec.ValidationError as error:
            self._faults.add(where, f"expected {member.expected}; {shown(error)}")
            return None


def _sort_out(fields: list[tuple[str, bytes]], options: OptionSet) -> list[tuple[str, bytes]]:
    """Take the options out of a form's fields; gives the rest."""
    rest = []
    for name, value in fields:
        if name in OPTIONS or name in NOT_OFFERED:
            where = pointer(name)
            options.add_text(name, _text(value, where), where)
        else:
            rest.append((name, value))
    return rest


def _text(value: bytes, where: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise invalid(where, "expected UTF-8") from error
