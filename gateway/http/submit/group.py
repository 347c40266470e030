"""From what was asked to a group: the whole of it is checked, staged in portions, and made in one step.

models, operation, references      every fault is collected, and one refusal names them all
documents and children             staged, a portion at a time
create_group                       the group exists, or nothing does
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import trio
from msgspec import Struct, structs

from gateway.http.message import Request
from gateway.http.submit.admission import CHILD, PARENT, route_for, unknown_outcome
from gateway.http.submit.asked import Asked, members_of_all, members_of_one, priority_of, unknown_dependency
from gateway.http.submit.children import Child, Faults, GroupAsk
from gateway.http.submit.content_type import OCTETS
from gateway.http.submit.digest import STEP_BYTES, Digest
from gateway.http.submit.fingerprint import fingerprint_of_group, identity_of
from gateway.http.submit.intake import Intake
from gateway.http.submit.llm_input import check_input, check_takes_type
from gateway.http.submit.options import Options
from gateway.http.submit.staging import Staging
from gateway.http.submit.upload import JSON
from gateway.manager.document import is_json_input
from gateway.problems import ApiError, shown
from gateway.registry import Route, operations_of
from gateway.services import Services
from store.api_groups import STAGED_AT_ONCE
from store.errors import StoreUnavailable, UnknownDependency
from store.groups import child_id
from store.job import Blob, GroupTerms, Submission
from store.values import Created

ROUTED_AT_ONCE: Final = 500
"""Children that are looked at before others have their turn."""


class _Checked(Struct, frozen=True):
    """A child of which nothing is wrong."""

    child: Child
    route: Route
    document: Blob | None
    """What its reference names."""


class Grouping:
    """Makes one group.

    Args:
        services: of the gateway.
        request: who asks.
        asked: the head of the request; its options are those of the body too by now.
        staging: of the group.
    """

    def __init__(self, services: Services, request: Request, asked: Asked, staging: Staging) -> None:
        self._services = services
        self._request = request
        self._tenant = request.caller.tenant
        self._asked = asked
        self._options = asked.options.options()
        self._staging = staging
        self._bytes = 0
        """Of the documents that came with the group."""

    async def make(self, ask: GroupAsk) -> Created:
        """The group that was asked for, or that its key had made before.

        Raises:
            ApiError, Draining, and what a store refuses: nothing was made.
        """
        checked = await self._check(ask)
        identities = [await self._stage(index, each) for index, each in enumerate(checked)]
        await self._staging.flush()
        if self._staging.gone:
            for index in sorted(self._staging.gone):
                _no_document(ask.faults, ask.children[index])
            raise ask.faults.refusal()
        parent = self._parent(ask, checked, fingerprint_of_group(self._options, identities))
        try:
            with self._services.gate.entering():
                created = await self._services.store.jobs.create_group(parent)
        except UnknownDependency as error:
            raise unknown_dependency(error, self._asked.options) from error
        except StoreUnavailable as error:
            raise unknown_outcome(self._services, error, parent.id) from error
        self._staging.made = not created.replayed
        return created

    # ------------------------------------------------------------------------------------------- checking

    async def _check(self, ask: GroupAsk) -> list[_Checked]:
        """Routes and documents of all children.

        Raises:
            ApiError: names every bad child; EXTERNAL_UPSTREAM_FORBIDDEN when one of them asks for such a one.
        """
        routes = _Routes(self._services, self._request, self._asked, ask.faults)
        documents = await self._documents(ask.children)
        checked = []
        for index, child in enumerate(ask.children):
            if index % ROUTED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            route = routes.of(child)
            document = documents.get(child.reference) if child.reference is not None else None
            if child.reference is not None and document is None:
                _no_document(ask.faults, child)
            elif route is not None and self._is_taken(route, child, document, ask.faults):
                checked.append(_Checked(child, route, document))
        if ask.faults:
            raise ask.faults.refusal(routes.code)
        return checked

    def _is_taken(self, route: Route, child: Child, document: Blob | None, faults: Faults) -> bool:
        """Whether the upstream of a child takes its document; if not, that is a fault."""
        is_json = child.input is not None or (document is not None and is_json_input(document))
        try:
            check_takes_type(route, JSON if is_json else OCTETS, child.where)
            if child.input is not None:
                check_input(route, child.input, f"{child.where}/input")
        except ApiError as error:
            faults.take(error, child.where)
            return False
        return True

    async def _documents(self, children: Sequence[Child]) -> dict[str, Blob]:
        """The stored documents of the tenant that children name, by their references."""
        named = list(dict.fromkeys(child.reference for child in children if child.reference is not None))
        found: dict[str, Blob] = {}
        for first in range(0, len(named), STAGED_AT_ONCE):
            portion = named[first : first + STAGED_AT_ONCE]
            blobs = await self._services.store.jobs.documents(self._tenant, portion)
            found |= {name: blob for name, blob in zip(portion, blobs, strict=True) if blob is not None}
        return found

    # ------------------------------------------------------------------------------------------- staging

    async def _stage(self, index: int, checked: _Checked) -> object:
        """Hand a child over, with its document; gives its identity."""
        child = checked.child
        if child.reference is not None and checked.document is not None:
            payload, sha256 = as_document(checked.document, child.content_type), None
        else:
            payload = child.brought or await store_content(child, self._staging)
            sha256 = payload.sha256
            self._count(payload)
        await self._staging.add(self._submission(index, checked, payload))
        return identity_of(child, sha256)

    def _count(self, payload: Blob) -> None:
        most = self._services.config.jobs.max_group_bytes
        self._bytes += payload.size if payload.length is None else payload.length
        if self._bytes > most:
            raise ApiError("PAYLOAD_TOO_LARGE", f"the documents have more than {most} bytes together")

    def _submission(self, index: int, checked: _Checked, payload: Blob) -> Submission:
        child, route, options = checked.child, checked.route, self._options
        parent_id = self._staging.parent_id
        return Submission(
            **members_of_all(self._services, self._request, self._asked.origin, options),
            id=child_id(parent_id, index),
            parent_id=parent_id,
            index=index,
            model=route.model,
            operation=CHILD,
            upstream=route.upstream.name,
            priority=priority_of(self._services, self._tenant, options, route),
            payload=payload,
            request_fingerprint=payload.sha256,
            doc_hash=child.doc_hash or f"sha256:{payload.sha256}",
            pages=child.pages,
            metadata=child.options.metadata,
            params=options.params if child.options.params is None else child.options.params,
        )

    def _parent(self, ask: GroupAsk, checked: Sequence[_Checked], fingerprint: str) -> Submission:
        options, origin, total = self._options, self._asked.origin, len(checked)
        models = {each.route.model for each in checked}
        routes = [each.route for each in checked]
        return Submission(
            **members_of_all(self._services, self._request, origin, options),
            **members_of_one(self._services, self._asked, options),
            id=self._staging.parent_id,
            model=models.pop() if len(models) == 1 else options.model or "",
            operation=PARENT,
            upstream="",
            priority=min(priority_of(self._services, self._tenant, options, route) for route in routes),
            payload=None,
            request_fingerprint=fingerprint,
            doc_hash=origin.doc_hash,
            pages=origin.pages,
            params=options.params,
            group=GroupTerms(total, min(ask.max_parallel, total), ask.policy),
        )


class _Routes:
    """Where children go. Each model is looked up once, so that a refusal is audited once."""

    def __init__(self, services: Services, request: Request, asked: Asked, faults: Faults) -> None:
        self._services = services
        self._request = request
        self._asked = asked
        self._options = asked.options.options()
        self._faults = faults
        self._known: dict[str | None, Route | ApiError] = {}
        self.code = "INVALID_REQUEST"
        """Of the refusal, if there is one."""

    def of(self, child: Child) -> Route | None:
        """The route of a child; None when that is a fault."""
        own = child.options.model
        model = own or self._options.model
        found = self._known.get(model)
        if found is None:
            found = self._known[model] = self._looked_up(model)
            if isinstance(found, ApiError) and own is None and model is not None:
                self._note(found, self._asked.options.place_of("model"))
        if isinstance(found, Route):
            return found
        if own is not None or model is None:
            self._note(found, f"{child.where}/model")
        return None

    def _note(self, error: ApiError, where: str) -> None:
        self._faults.add(where, error.detail)
        if error.code == "EXTERNAL_UPSTREAM_FORBIDDEN":
            self.code = error.code

    def _looked_up(self, model: str | None) -> Route | ApiError:
        operation = self._options.operation
        try:
            route = route_for(self._services, self._request, self._request.caller.tenant, model, operation)
        except ApiError as error:
            return error
        usual, *_ = operations_of(route.upstream)
        if route.operation == usual:
            return route
        return ApiError(
            "INVALID_REQUEST",
            f"children of a group run the usual operation of their model, which is {usual}; got {shown(operation)}",
        )


async def store_content(child: Child, intake: Intake) -> Blob:
    """Store the document that stood in the body itself."""
    if child.inline is not None:
        content, content_type = msgspec.json.decode(child.inline, type=bytes), child.content_type or OCTETS
    elif child.input is not None:
        content, content_type = child.input, JSON
    else:
        raise ValueError(f"{child.where} has no document")
    document, draft, digest = memoryview(content), intake.open(), Digest()
    for start in range(0, len(document), STEP_BYTES):
        piece = bytes(document[start : start + STEP_BYTES])
        await digest.update(piece)
        await draft.write(piece)
    blob = await draft.seal(sha256=await digest.hexdigest(), content_type=content_type)
    await intake.bring(blob, draft)
    return blob


async def replayed_fingerprint(options: Options, ask: GroupAsk, intake: Intake) -> str:
    """The fingerprint of a group of which nothing is to be kept.

    Raises:
        ApiError: INVALID_REQUEST, it cannot be one that made a group.
    """
    if ask.faults:
        raise ask.faults.refusal()
    identities = []
    for child in ask.children:
        sha256 = None
        if child.reference is None:
            sha256 = (child.brought or await store_content(child, intake)).sha256
        identities.append(identity_of(child, sha256))
    return fingerprint_of_group(options, identities)


def as_document(blob: Blob, content_type: str | None) -> Blob:
    """A stored document as another job refers to it: the document alone, whatever body it came in.

    Args:
        blob: as its job has it.
        content_type: what it is to be taken for; None: what it was.
    """
    if blob.offset is None:
        return blob if content_type is None else structs.replace(blob, content_type=content_type)
    named = content_type or blob.part_type or OCTETS
    return structs.replace(blob, content_type=named, part_type=named)


def _no_document(faults: Faults, child: Child) -> None:
    faults.add(f"{child.where}/payload_ref", f"there is no document {shown(child.reference)}")
