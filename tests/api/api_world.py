"""Handlers of the public API over the model store: requests without a server, executions without an upstream."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import trio
from described import judge, judge_problem
from msgspec.structs import replace as replace_struct

from gateway.audit import Action, Refusal
from gateway.config import parse_config
from gateway.drain import DrainGate
from gateway.endings import telling_ends
from gateway.health import Health
from gateway.http.admin import ROUTES as ADMIN_ROUTES
from gateway.http.jobs import get_job, get_result, wait_job
from gateway.http.listing import list_jobs
from gateway.http.message import Caller, ClientGone, Head, Reply, Request
from gateway.http.problem_map import ProblemMap
from gateway.http.public import ROUTES as PUBLIC_ROUTES
from gateway.http.request_head import RequestId
from gateway.http.retry_after import RetryAfter
from gateway.http.routing import Handler
from gateway.http.submit import submit_job
from gateway.metrics import Metrics
from gateway.problems import ApiError
from gateway.registry import Registry
from gateway.services import Services
from store.job import Job
from store.policy import EndpointSlots, StorePolicy, UpstreamSlots
from store.testing.making import claim_one, complete, read
from store.testing.model import ModelStore, open_model
from store.testing.model_harness import trio_clock

CONFIG = """
server: {max_body_bytes: 3000000, max_json_bytes: 2000000}
jobs: {max_group_bytes: 5000000, max_children: 1200}
tenants:
  slow: {min_priority: 60}
  picky: {models: [labels]}
upstreams:
  - name: paddle
    type: ocr-http
    adapter: sync-http
    class: on_prem
    endpoints: [{url: "http://ocr", slots: 2}]
    models: [paddleocr]
    submit_path: /ocr
  - name: forms
    type: ocr-http
    adapter: sync-http
    class: on_prem
    endpoints: [{url: "http://forms", slots: 1}]
    models: [formreader]
    submit_path: /forms
    forward: multipart
  - name: labels
    type: classify
    adapter: classify
    class: on_prem
    endpoints: [{url: "http://labels", slots: 1}]
    models: [labels]
    submit_path: /classify
  - name: cloud
    type: ocr-http
    adapter: sync-http
    class: external_dev
    endpoints: [{url: "https://cloud.example", slots: 1}]
    models: [cloudocr]
    submit_path: /ocr
  - name: qwen
    type: llm
    class: on_prem
    endpoints: [{url: "http://vllm", slots: 1}]
    models: [qwen3]
"""

PADDLE = UpstreamSlots("paddle", (EndpointSlots("http://ocr", 2),))
RAW = {"content-type": "application/pdf", "x-model": "paddleocr"}
JSON = {"content-type": "application/json"}
TRACE = "0af7651916cd43dd8448eb211c80319c"


class Chunks:
    """A body that arrives in given pieces, and may break off with an error."""

    def __init__(self, pieces: Sequence[bytes], error: Exception | None = None) -> None:
        self._pieces = iter(pieces)
        self._error = error
        self.read = 0
        """Bytes that were asked for."""

    def __aiter__(self):
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        piece = next(self._pieces, None)
        if piece is not None:
            self.read += len(piece)
            return piece
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration


class Refusals:
    """Stands for the audit emitter."""

    def __init__(self) -> None:
        self.events: list[Refusal] = []
        self.actions: list[Action] = []
        self.ended: list[Job] = []

    def refused(self, refusal: Refusal) -> None:
        self.events.append(refusal)

    def action(self, action: Action) -> None:
        self.actions.append(action)

    def job_ended(self, job: Job) -> None:
        self.ended.append(job)


class World:
    """A gateway's public side, called directly."""

    def __init__(self, services: Services, store: ModelStore, refusals: Refusals) -> None:
        self.services = services
        self.store = store
        self.refusals = refusals

    def request(
        self,
        body: bytes | Chunks = b"",
        headers: dict[str, str] | None = None,
        query: Sequence[tuple[str, str]] = (),
        tenant: str = "acme",
    ) -> Request:
        """A request; X-Request-Id is found as the server would."""
        named = dict(headers or {})
        own = "x-request-id" in named
        return Request(
            head=Head(method="GET", path="/jobs", query=tuple(query), headers=tuple(named.items())),
            caller=Caller(tenant),
            body=Chunks([body]) if isinstance(body, bytes) else body,
            request_id=named.get("x-request-id", TRACE),
            own_request_id=own,
        )

    async def submit(self, body: bytes | Chunks = b"%PDF", headers=None, **more) -> Reply:
        """POST /jobs; a raw PDF for paddleocr unless headers say otherwise."""
        request = self.request(body, RAW if headers is None else headers, **more)
        return await self._judged("submit_job", submit_job, request)

    async def get(self, job_id: str, **more) -> Reply:
        return await self._judged("get_job", get_job, self.request(**more), job_id=job_id)

    async def wait(self, job_id: str, **more) -> Reply:
        return await self._judged("wait_job", wait_job, self.request(**more), job_id=job_id)

    async def result(self, job_id: str, **more) -> Reply:
        return await self._judged("get_result", get_result, self.request(**more), job_id=job_id)

    async def list(self, *query: tuple[str, str], **more) -> dict:
        return content(await self._judged("list_jobs", list_jobs, self.request(query=query, **more)))

    async def act(self, name: str, job_id: str | None = None, body=None, *, path=None, **more) -> Reply:
        """A public route by its name, through the frame: a problem is a reply too, and both are judged."""
        route = next(route for route in PUBLIC_ROUTES if route.name == name)
        request = self.request(b"" if body is None else body, **more)
        named = {} if job_id is None else {"job_id": job_id}
        reply = await self._replied(route.handler, request, **named, **(path or {}))
        judge(name, reply)
        return reply

    async def operate(self, name: str, /, body: bytes | None = None, *, query=(), headers=None, **path):
        """A route of the admin bind by its name, through the frame, as an operator."""
        route = next(route for route in ADMIN_ROUTES if route.name == name)
        request = replace_struct(
            self.request(b"" if body is None else body, headers, query),
            caller=Caller("ops", admin=True, operator=True),
        )
        return await self._replied(route.handler, request, **path)

    async def _replied(self, handler: Handler, request: Request, **path: str) -> Reply:
        services = self.services
        try:
            return await handler(services, request, **path)
        except Exception as error:  # noqa: BLE001  # as the frame of every route
            problems = ProblemMap(RetryAfter(services.config, services.store, services.gate), services.outage)
            request_id = RequestId(request.request_id, own=request.own_request_id)
            return await problems.reply(error, request_id)

    async def _judged(self, name: str, handler: Handler, request: Request, **path_params: str) -> Reply:
        """Call a handler; whatever it answers or refuses stands in the description of the API."""
        try:
            reply = await handler(self.services, request, **path_params)
        except ApiError as error:
            judge_problem(name, error, request.request_id)
            raise
        judge(name, reply)
        return reply

    async def submitted(self, *args, **more) -> Job:
        """POST /jobs; the record that it made."""
        reply = await self.submit(*args, **more)
        job = await self.store.jobs.get(content(reply)["job_id"])
        assert job is not None
        return job

    async def fan_out(
        self, *children: dict, max_parallel: int = 2, headers=None, tenant="acme", **more
    ) -> Reply:
        """POST /jobs of a group, through the frame; children are `{input: {}}` unless they say otherwise."""
        group = {name: more.pop(name) for name in ("model", "policy") if name in more}
        asked = [
            each if each.keys() & {"input", "payload_ref", "inline"} else {"input": {}} | each
            for each in children
        ]
        fanout = {"model": "paddleocr"} | group | {"children": asked, "max_parallel": max_parallel}
        body = msgspec.json.encode({"fanout": {k: v for k, v in fanout.items() if v is not None}} | more)
        return await self.act("submit_job", body=body, headers=JSON | (headers or {}), tenant=tenant)

    async def group(self, total: int, **more) -> dict:
        """The job object of a new group of so many children."""
        reply = await self.fan_out(*[{}] * total, **more)
        assert reply.status == 202, reply.body
        return content(reply)

    async def document(self, job: Job) -> bytes:
        """The stored payload of a job, whole."""
        return await read(self.store, job.payload)

    async def run_next(self, result: bytes = b'{"text": "ok"}') -> Job:
        """Claim the next job of paddle and complete it; its audit event is taken."""
        done = await complete(self.store, await claim_one(self.store, PADDLE), result)
        await self.store.jobs.audited([done.id])
        return done

    def counted(self, outcome: str, tenant: str = "acme") -> float:
        """Submits of this outcome, over all upstreams."""
        family = self.services.metrics.jobs_submitted_total.collect()[0]
        return sum(
            sample.value
            for sample in family.samples
            if sample.name.endswith("_total")
            and (sample.labels["outcome"], sample.labels["tenant"]) == (outcome, tenant)
        )

    def reconfigure(self, config: str) -> None:
        """Go on with another configuration, as a restart would."""
        parsed = parse_config(config, Path("/nowhere"), {}).config
        self.services = replace(
            self.services, config=parsed, registry=Registry(parsed), health=Health(parsed.upstreams)
        )

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time pass, and retention take what it may."""
        await trio.sleep(seconds)
        await self.store.jobs.sweep()

    def ended(self, status: str) -> float:
        """Jobs that ended so, as the metrics count them."""
        samples = self.services.metrics.jobs_total.collect()[0].samples
        return sum(
            sample.value
            for sample in samples
            if sample.name.endswith("_total") and sample.labels["status"] == status
        )

    def is_empty(self) -> bool:
        """No record, no payload, no key, no reservation."""
        ledger = self.store._ledger
        blobs = ledger.blobs
        return not (ledger.jobs or ledger.keys or blobs._contents or blobs.reserved or ledger.depths.total())


@asynccontextmanager
async def open_world(policy: StorePolicy | None = None, config: str = CONFIG) -> AsyncIterator[World]:
    """A world with an empty store."""
    parsed = parse_config(config, Path("/nowhere"), {}).config
    refusals = Refusals()
    async with open_model(policy or StorePolicy(), trio_clock, "replica-1") as store:
        services = Services(
            config=parsed,
            registry=Registry(parsed),
            store=store,
            gate=DrainGate(),
            metrics=Metrics(),
            emitter=refusals,  # type: ignore[arg-type]  # it keeps what it is told
            health=Health(parsed.upstreams),
        )
        with telling_ends(store.events, refusals, services.metrics):  # type: ignore[arg-type]  # it keeps what it is told
            yield World(services, store, refusals)


def content(reply: Reply) -> dict:
    """The JSON of a reply."""
    assert isinstance(reply.body, bytes)
    return msgspec.json.decode(reply.body)


async def body_of(reply: Reply) -> bytes:
    """The bytes of a reply, which is closed as a server would."""
    if isinstance(reply.body, bytes):
        return reply.body
    try:
        return b"".join([chunk async for chunk in reply.body])
    finally:
        if hasattr(reply.body, "aclose"):
            await reply.body.aclose()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def gone(*pieces: bytes) -> Chunks:
    """A body that its client breaks off."""
    return Chunks(pieces, ClientGone())
