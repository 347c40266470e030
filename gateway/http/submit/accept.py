"""From a request to a job: the order in which a submit is checked.

    closed gate, encoding, options and headers of the head      nothing is asked of the store yet
    idempotency key ── known ──▶ place for an upload, body only hashed, fingerprints compared: the existing job
    model, full queue, receiver, size, room for the upload      before the first byte of the body
    body read into a draft, options of the body
    model and receiver again, unknown fields, seal, create      the job exists
    or, the body being a group's: every child, stage, create    the group exists (`group`)

Whatever is refused on the way, and a client that breaks off, leaves nothing: drafts and what was staged go with their
blocks, and `create` alone makes a record, in one step.
"""

from adapters.media_type import media_type_of
from gateway.drain import Draining
from gateway.http.message import Request
from gateway.http.submit.admission import route_for, unknown_outcome
from gateway.http.submit.asked import (
    Asked,
    members_of_all,
    members_of_one,
    priority_of,
    unknown_dependency,
)
from gateway.http.submit.callback import check_callback
from gateway.http.submit.children import GroupAsk
from gateway.http.submit.documents import read_body, read_raw
from gateway.http.submit.fingerprint import fingerprint_of
from gateway.http.submit.group import Grouping, replayed_fingerprint
from gateway.http.submit.headers import idempotency_key_of, origin_of
from gateway.http.submit.intake import NOWHERE
from gateway.http.submit.llm_input import check_input, check_takes_type
from gateway.http.submit.options import Options, OptionSet, head_options, pointer, unknown_field
from gateway.http.submit.staging import staging
from gateway.http.submit.upload import Document, Upload, announces_encoding
from gateway.problems import ApiError
from gateway.registry import Route
from gateway.services import Services
from store.errors import IdempotencyMismatch, ResultExpired, StoreUnavailable, UnknownDependency
from store.job import Blob, Job, Submission, Tombstone
from store.ulid import new_job_id
from store.values import Created


class Submit:
    """One request on its way to a job."""

    def __init__(self, services: Services, request: Request) -> None:
        self._services = services
        self._request = request
        self._tenant = request.caller.tenant
        self.route: Route | None = None
        """Where the job goes, as soon as that is known; a group goes nowhere as a whole."""
        self.is_group = False
        self._checked_url: str | None = None

    async def run(self) -> Created:
        """The job that the request made, or had made before.

        Raises:
            ApiError, Draining, ClientGone, and what a store refuses: nothing was made.
        """
        asked = self._read_head()
        jobs, payloads = self._services.store.jobs, self._services.store.payloads
        upload = self._upload(asked.options)
        if asked.key is not None:
            known = await jobs.find(self._tenant, asked.key)
            if known is not None:
                return await self._replay(upload, known)
        options = asked.options.options()
        if options.model is not None or not upload.takes_options:
            self.route = self._resolve(options)
            check_takes_type(self.route, upload.media_type)
        await jobs.may_admit(self._tenant)
        await self._check_callback(asked.options)
        chunks = upload.chunks()
        async with payloads.receive_many(upload.reserve) as drafts:
            parent_id, outage = new_job_id(self._services.store.now()), self._services.outage
            async with staging(jobs, drafts, parent_id, outage) as staged:
                if not upload.takes_options:
                    return await self._create(asked, await read_raw(upload, chunks, staged))
                read = await read_body(upload, chunks, staged)
                if isinstance(read, Document):
                    return await self._create(asked, read)
                self.route, self.is_group = None, True
                await self._check_callback(asked.options)
                return await Grouping(self._services, self._request, asked, staged).make(read)

    def _upload(self, options: OptionSet) -> Upload:
        config, now = self._services.config, self._services.store.now()
        return Upload(request=self._request, options=options, limits=config.server, jobs=config.jobs, now=now)

    def _read_head(self) -> Asked:
        """Everything that can be refused by looking at the head alone."""
        head = self._request.head
        if self._services.gate.closed:
            raise Draining
        if announces_encoding(head):
            raise ApiError(
                "UNSUPPORTED_MEDIA_TYPE", "header content-encoding: expected identity, the body as it is"
            )
        options = head_options(head, self._services.store.now())
        return Asked(options=options, origin=origin_of(head), key=idempotency_key_of(head))

    async def _replay(self, upload: Upload, known: Job | Tombstone) -> Created:
        """Compare with the request that used the key before; nothing of the body is kept.

        It needs no room in the store, but a place among the uploads: a JSON body is held while it is read.
        """
        if isinstance(known, Tombstone):
            raise ResultExpired(known.id, known.expired_at)
        chunks = upload.chunks()
        async with self._services.store.payloads.receive(0):
            if upload.takes_options:
                read = await read_body(upload, chunks, NOWHERE)
            else:
                read = await read_raw(upload, chunks, NOWHERE)
            options = upload.options.options()
            if isinstance(read, GroupAsk):
                fingerprint = await replayed_fingerprint(options, read, NOWHERE)
            else:
                fingerprint = fingerprint_of(options, read)
        if fingerprint != known.request_fingerprint:
            raise IdempotencyMismatch(known.id)
        return Created(known, replayed=True, position=None)

    async def _create(self, asked: Asked, document: Document) -> Created:
        options = asked.options.options()
        route = self.route = self._resolve(options)
        check_takes_type(route, media_type_of(document.content_type))
        if document.input is not None:
            check_input(route, document.input)
        _refuse_unknown_fields(document, route)
        await self._check_callback(asked.options)
        part = document.part
        payload = await document.draft.seal(
            sha256=document.sha256,
            content_type=document.content_type,
            filename=document.filename,
            part=None if part is None else (part.offset, part.length, part.content_type),
        )
        submission = self._submission(asked, options, route, document, payload)
        try:
            with self._services.gate.entering():
                return await self._services.store.jobs.create(submission, document.draft)
        except UnknownDependency as error:
            raise unknown_dependency(error, asked.options) from error
        except StoreUnavailable as error:
            raise unknown_outcome(self._services, error, submission.id) from error

    async def _check_callback(self, options: OptionSet) -> None:
        """Look at the callback_url, unless that was done when only the head was there."""
        url = options.options().callback_url
        if url is not None and url != self._checked_url:
            await check_callback(self._services, self._tenant, url, options.place_of("callback_url"))
            self._checked_url = url

    def _resolve(self, options: Options) -> Route:
        return route_for(self._services, self._request, self._tenant, options.model, options.operation)

    def _submission(
        self, asked: Asked, options: Options, route: Route, document: Document, payload: Blob
    ) -> Submission:
        origin = asked.origin
        return Submission(
            **members_of_all(self._services, self._request, origin, options),
            **members_of_one(self._services, asked, options),
            id=new_job_id(self._services.store.now()),
            model=route.model,
            operation=route.operation,
            upstream=route.upstream.name,
            priority=priority_of(self._services, self._tenant, options, route),
            payload=payload,
            request_fingerprint=fingerprint_of(options, document),
            doc_hash=origin.doc_hash or f"sha256:{document.sha256}",
            pages=origin.pages,
            params=options.params,
        )


def _refuse_unknown_fields(document: Document, route: Route) -> None:
    """A form goes on as it came to an upstream that takes forms; no other one would see these fields."""
    if document.other_fields and route.upstream.forward != "multipart":
        name, _ = document.other_fields[0]
        raise unknown_field(name, pointer(name))
