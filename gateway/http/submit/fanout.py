"""The member `fanout` of a JSON body: a group, decoded strictly, member by member.

Each member is looked at by itself, so that a bad one costs no other its check. Documents stay the bytes that stood in
the body; that an inline one is base64 is found out here, and its bytes are made again when they are stored.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
import trio
from msgspec import Meta, Raw, Struct

from adapters.media_type import media_type_of
from gateway.config.faults import near_miss
from gateway.http.submit.children import Child, Faults, GroupAsk
from gateway.http.submit.content_type import checked_type
from gateway.http.submit.headers import MAX_NAME_CHARS, MAX_PAGES
from gateway.http.submit.members import members_of
from gateway.http.submit.options import OptionSet, pointer
from gateway.problems import ApiError, shown
from store.job import GroupPolicy

FANOUT: Final = "fanout"
CHECKED_AT_ONCE: Final = 100
"""Children that are looked at before others have their turn."""
MAX_MEMBERS: Final = 100
"""Of an object; there are ten that mean something."""
SHA256_REFERENCE: Final = re.compile(r"sha256:[0-9a-f]{64}")
_OWN_OPTIONS: Final = ("model", "params", "metadata")
_DOCUMENTS: Final = ("input", "payload_ref", "inline")


class Member(Struct, frozen=True):
    """One row of a table of members."""

    kind: Any  # a type that msgspec decodes to
    expected: str


_Recorded = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]

GROUP_MEMBERS: Final[Mapping[str, Member]] = {
    "children": Member(list[Raw], "a list of children"),
    "max_parallel": Member(
        Annotated[int, Meta(ge=1)], "how many children may run at a time, an integer >= 1"
    ),
    "policy": Member(GroupPolicy, f"one of {', '.join(GroupPolicy)}"),
}
"""Beside `model`, which is an option."""
CHILD_MEMBERS: Final[Mapping[str, Member]] = {
    "input": Member(Raw, "the JSON that the upstream receives"),
    "payload_ref": Member(_Recorded, "a stored document: sha256:<64 hex digits>, or the id of a job"),
    "inline": Member(bytes, "a document in base64"),
    "content_type": Member(str, "a media type"),
    "doc_hash": Member(_Recorded, f"at most {MAX_NAME_CHARS} printable characters"),
    "pages": Member(Annotated[int, Meta(ge=1, le=MAX_PAGES)], f"an integer from 1 to {MAX_PAGES}"),
}
"""Beside `model`, `params` and `metadata`, which are options."""


async def read_fanout(raw: Raw, options: OptionSet, *, max_children: int, now: int) -> GroupAsk:
    """Decode the member `fanout`.

    Args:
        raw: the member, whose nesting has been checked.
        options: of the whole group; gets `model`.
        max_children: the most that a group may have.
        now: the store's time, ms since the epoch.

    Raises:
        ApiError: INVALID_REQUEST, there is no telling what the group is; faults of children are collected.
    """
    where = f"/{FANOUT}"
    members = await members_of(raw, where, MAX_MEMBERS)
    faults = Faults()
    known = [*GROUP_MEMBERS, "model"]
    for name in members.keys() - set(known):
        faults.add(where + pointer(name), f"unknown field{near_miss(name, known)}")
    if "model" in members:
        options.add_json("model", members["model"], f"{where}/model")
    decoded = {name: _decoded(members, name, where, GROUP_MEMBERS[name], faults) for name in GROUP_MEMBERS}
    children, max_parallel = decoded["children"], decoded["max_parallel"]
    for name in ("children", "max_parallel"):
        if decoded[name] is None and name not in members:
            faults.add(f"{where}/{name}", f"missing: expected {GROUP_MEMBERS[name].expected}")
    if children is not None and not 1 <= len(children) <= max_children:
        faults.add(f"{where}/children", f"expected from 1 to {max_children} children, got {len(children)}")
        children = None
    if children is None or max_parallel is None:
        raise faults.refusal()
    return GroupAsk(
        children=[child async for child in _Children(children, f"{where}/children", now, faults)],
        max_parallel=max_parallel,
        policy=decoded["policy"] or GroupPolicy.COLLECT,
        faults=faults,
    )


class _Children:
    """Decodes children one after the other; a bad one is given all the same, as far as it was understood."""

    def __init__(self, raws: list[Raw], where: str, now: int, faults: Faults) -> None:
        self._raws = enumerate(raws)
        self._where = where
        self._now = now
        self._faults = faults

    def __aiter__(self) -> "_Children":
        return self

    async def __anext__(self) -> Child:
        index, raw = next(self._raws, (-1, None))
        if raw is None:
            raise StopAsyncIteration
        if index % CHECKED_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        where = f"{self._where}/{index}"
        try:
            return self._child(await members_of(raw, where, MAX_MEMBERS), where)
        except ApiError as error:
            self._faults.take(error, where)
            return Child(where=where)

    def _child(self, members: Mapping[str, Raw], where: str) -> Child:
        faults = self._faults
        options = OptionSet(self._now)
        known = [*CHILD_MEMBERS, *_OWN_OPTIONS]
        for name, raw in members.items():
            place = where + pointer(name)
            if name in _OWN_OPTIONS:
                try:
                    options.add_json(name, raw, place)
                except ApiError as error:
                    faults.take(error, place)
            elif name not in CHILD_MEMBERS:
                faults.add(place, f"unknown field{near_miss(name, known)}")
        decoded = {
            name: _decoded(members, name, where, member, faults) for name, member in CHILD_MEMBERS.items()
        }
        self._check_document(decoded, members, where)
        reference = decoded["payload_ref"]
        if reference is not None and ":" in reference and not SHA256_REFERENCE.fullmatch(reference):
            faults.add(f"{where}/payload_ref", f"expected {CHILD_MEMBERS['payload_ref'].expected}")
            reference = None
        return Child(
            where=where,
            input=decoded["input"],
            inline=members["inline"] if decoded["inline"] else None,
            reference=reference,
            content_type=self._content_type(decoded, where),
            doc_hash=decoded["doc_hash"],
            pages=decoded["pages"],
            options=options.options(),
        )

    def _check_document(self, decoded: Mapping[str, Any], members: Mapping[str, Raw], where: str) -> None:
        named = [name for name in _DOCUMENTS if _given(members, name)]
        if len(named) != 1:
            got = " and ".join(named) or "none"
            self._faults.add(where, f"expected exactly one of {', '.join(_DOCUMENTS)}; got {got}")
        if decoded["inline"] == b"":
            self._faults.add(f"{where}/inline", "the document is empty")
        if decoded["doc_hash"] is not None and not decoded["doc_hash"].isprintable():
            self._faults.add(f"{where}/doc_hash", f"expected {CHILD_MEMBERS['doc_hash'].expected}")

    def _content_type(self, decoded: Mapping[str, Any], where: str) -> str | None:
        """The type of a document that is not JSON: that stands in `input`, as it is everywhere else."""
        named = decoded["content_type"]
        if named is None:
            return None
        place = f"{where}/content_type"
        try:
            content_type = checked_type(named, place)
        except ApiError as error:
            self._faults.take(error, place)
            return None
        if decoded["input"] is not None or media_type_of(content_type) == "application/json":
            self._faults.add(place, "expected the type of a document; JSON stands in `input` and needs none")
        return content_type


def _given(members: Mapping[str, Raw], name: str) -> bool:
    """Whether a member has a value. `input` may be null, every other one is left out then."""
    return name in members and (name == "input" or bytes(members[name]) != b"null")


def _decoded(
    members: Mapping[str, Raw], name: str, where: str, member: Member, faults: Faults
) -> Any:  # Any: the table row knows what it is
    """The value of a member; None when it is not given, or is a fault."""
    if not _given(members, name):
        return None
    if member.kind is Raw:
        return members[name]
    try:
        return msgspec.json.decode(members[name], type=member.kind)
    except msgspec.DecodeError as error:
        faults.add(f"{where}/{name}", f"expected {member.expected}; {shown(error)}")
        return None
