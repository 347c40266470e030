"""The admin bind through a real server: probes, figures, drain, and who may ask."""

import re
from hashlib import sha256
from typing import cast

import pytest
import trio
from http_harness import EMPTY_COUNTS, FakeEmitter, FakeStore, make_config, make_services, serving
from msgspec.structs import replace

from adapters.base import Kind
from gateway.config import Bind, Config
from gateway.config.schema import Auth, Key, Server
from gateway.http.admin import ROUTES, make_admin_app
from gateway.http.admin_jobs import Reclaim
from gateway.http.app import App
from gateway.manager.housekeeping import ReclaimSuspended
from gateway.services import Services
from store.errors import StoreUnavailable
from store.job import PriorityClass, Status
from store.values import Backlog, Reclaimed, SlotCounts, TenantLoad

JSON = "Content-Type: application/json"
TOKEN = "t0ken"
KEYS = (
    Key(sha256=sha256(b"plain").hexdigest(), tenant="acme"),
    Key(sha256=sha256(b"boss").hexdigest(), tenant="ops", admin=True),
)


def store_of(services: Services) -> FakeStore:
    return cast("FakeStore", services.store)


def emitter_of(services: Services) -> FakeEmitter:
    return cast("FakeEmitter", services.emitter)


def public_bind(**server: object) -> Config:
    return make_config(Server(admin_bind=Bind("0.0.0.0", 8081), **server), Auth(keys=KEYS))


async def nothing_to_reclaim() -> Reclaimed:
    await trio.lowlevel.checkpoint()
    return Reclaimed()


def admin_app(services: Services, token: str | None, reclaim: Reclaim = nothing_to_reclaim) -> App:
    return make_admin_app(services, token, reclaim)


def ready_services(config: Config | None = None) -> Services:
    services = make_services(config)
    services.started.set()
    return services


async def test_livez_needs_nothing() -> None:
    """A process without a store, not yet started, is alive."""
    services = make_services()
    store_of(services).away = True
    async with serving(admin_app(services, None)) as server:
        assert (await server.ask("GET /livez HTTP/1.1")).status == 200


async def test_readyz_names_every_reason() -> None:
    """Readiness is 503 while starting, draining or without a store, and lists which; else 200 with no reason."""
    services = make_services()
    async with serving(admin_app(services, None)) as server:
        answers = [await server.ask("GET /readyz HTTP/1.1")]
        services.started.set()
        answers.append(await server.ask("GET /readyz HTTP/1.1"))
        services.gate.begin("test")
        store_of(services).away = True
        answers.append(await server.ask("GET /readyz HTTP/1.1"))
    assert [(answer.status, answer.json()) for answer in answers] == [
        (503, {"ready": False, "reasons": ["starting"]}),
        (200, {"ready": True, "reasons": []}),
        (503, {"ready": False, "reasons": ["draining", "store_unavailable"]}),
    ]


@pytest.mark.parametrize("away", [False, True])
async def test_metrics_are_served(away: bool) -> None:
    """A scrape has the gauges read from the store, and is answered without one too."""
    services = ready_services()
    services.activity.uploads = 3
    store_of(services).jobs.current = (
        StoreUnavailable("away", outcome="not_done") if away else replace(EMPTY_COUNTS, audit_due=7)
    )
    async with serving(admin_app(services, None)) as server:
        answer = await server.ask("GET /metrics HTTP/1.1")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"gateway_uploads_in_flight 3.0" in answer.body
    assert (b"gateway_audit_due 7.0" in answer.body) is not away


async def test_upstreams_have_the_page_s_shape() -> None:
    """GET /admin/upstreams shows slots, waiters, queue and endpoints of each upstream."""
    services = ready_services()
    store_of(services).slots.current = SlotCounts(
        in_use={"http://ocr-1:8868": 3}, waiting={PriorityClass.INTERACTIVE: 2, PriorityClass.BATCH: 0}
    )
    store_of(services).jobs.current = replace(
        EMPTY_COUNTS, backlogs=(_backlog(queued=5),), mean_service_ms={"ocr": 12.6}
    )
    async with serving(admin_app(services, None)) as server:
        answer = await server.ask("GET /admin/upstreams HTTP/1.1")
    endpoint = {"slots": 4, "healthy": True, "breaker": "closed"}
    assert answer.json() == {
        "upstreams": [
            {
                "name": "ocr",
                "type": "ocr-http",
                "class": "on_prem",
                "paused": False,
                "slots": 8,
                "in_use": 3,
                "waiting": {"interactive": 2, "batch": 0},
                "queued": {"interactive": 0, "batch": 5},
                "mean_service_ms": 13,
                "endpoints": [
                    {"url": "http://ocr-1:8868", "in_use": 3, **endpoint},
                    {"url": "http://ocr-2:8868", "in_use": 0, **endpoint},
                ],
            }
        ]
    }


async def test_health_of_endpoints_is_shown() -> None:
    """An open breaker shows in /admin/upstreams and in the metrics (20, 60)."""
    services = ready_services()
    async with serving(admin_app(services, None)) as server:
        for _ in range(5):
            services.health.of("ocr").failed("http://ocr-2:8868", Kind.CONNECT)
        [upstream] = (await server.ask("GET /admin/upstreams HTTP/1.1")).json()["upstreams"]
        scraped = (await server.ask("GET /metrics HTTP/1.1")).body.decode()
    shown = [(each["slots"], each["healthy"], each["breaker"]) for each in upstream["endpoints"]]
    assert shown == [(4, True, "closed"), (4, False, "open")]
    labels = 'endpoint="http://ocr-2:8868",upstream="ocr"'
    assert f"gateway_endpoint_up{{{labels}}} 0.0" in scraped
    assert f"gateway_breaker_state{{{labels}}} 2.0" in scraped
    assert f"gateway_slots{{{labels}}} 4.0" in scraped


async def test_queues_have_the_page_s_shape() -> None:
    """GET /admin/queues shows the ledger by status, upstream and tenant."""
    services = ready_services()
    store_of(services).jobs.current = replace(
        EMPTY_COUNTS,
        by_status={Status.QUEUED: 5, Status.PROCESSING: 1, Status.FAILED: 2},
        delayed=3,
        backlogs=(_backlog(queued=5),),
        tenants=(TenantLoad("acme", 5, 1, 2, 2, 10.4, None),),
        now=5000,
    )
    async with serving(admin_app(services, None)) as server:
        answer = await server.ask("GET /admin/queues HTTP/1.1")
    shared = {"queued": 5, "processing": 1, "mean_run_ms": None}
    assert answer.json() == {
        "queued": 5,
        "delayed": 3,
        "processing": 1,
        "paused": 0,
        "interrupted": 0,
        "terminal": {"completed": 0, "failed": 2, "cancelled": 0, "superseded": 0},
        "oldest_queued_ms": 4000,
        "by_upstream": [
            {
                "upstream": "ocr",
                "priority_class": "batch",
                "delayed": 3,
                "oldest_queued_ms": 4000,
                "mean_wait_ms": 7,
                **shared,
            }
        ],
        "by_tenant": [{"tenant": "acme", "finished": 2, "failed": 2, "mean_wait_ms": 10, **shared}],
    }


def _backlog(queued: int) -> Backlog:
    return Backlog(
        upstream="ocr",
        priority_class=PriorityClass.BATCH,
        queued=queued,
        processing=1,
        delayed=3,
        oldest_queued_at=1000,
        mean_wait_ms=7.2,
        mean_run_ms=None,
    )


async def test_figures_without_a_store_are_503() -> None:
    """Without a store the figures are STORE_UNAVAILABLE."""
    services = ready_services()
    store_of(services).jobs.current = StoreUnavailable("away", outcome="not_done")
    async with serving(admin_app(services, None)) as server:
        for path in ("/admin/upstreams", "/admin/queues"):
            answer = await server.ask(f"GET {path} HTTP/1.1")
            assert (answer.status, answer.json()["code"]) == (503, "STORE_UNAVAILABLE")


async def test_drain_begins_and_ends() -> None:
    """GW-10: POST begins a drain, DELETE ends it; both can be repeated, work without a store, and are audited once."""
    services = ready_services()
    services.activity.jobs = 2
    store_of(services).jobs.current = StoreUnavailable("away", outcome="not_done")
    async with serving(admin_app(services, None)) as server:
        before = (await server.ask("GET /admin/drain HTTP/1.1")).json()
        draining = [
            (await server.ask(f"{line}\n{JSON}")).json()
            for line in ("POST /admin/drain HTTP/1.1", "POST /admin/drain HTTP/1.1")
        ]
        assert services.gate.draining
        shown = (await server.ask("GET /admin/drain HTTP/1.1")).json()
        ready = await server.ask("GET /readyz HTTP/1.1")
        after = [(await server.ask(f"DELETE /admin/drain HTTP/1.1\n{JSON}")).json() for _ in range(2)]
        assert not services.gate.draining
    assert before == {"draining": False, "since": None, "processing": 2, "calls": 0}
    assert all(each["draining"] and each["processing"] == 2 for each in [*draining, shown])
    assert shown["since"].startswith("2023-11-14T22:13:")
    assert ready.json()["reasons"] == ["draining"]
    assert after == [before, before]
    assert [action.action for action in emitter_of(services).actions] == ["drain", "undrain"]
    assert emitter_of(services).actions[0].actor == "local operator"


async def test_write_takes_a_body() -> None:
    """A write may send a JSON body; its connection stays usable."""
    async with serving(admin_app(ready_services(), None)) as server:
        answer = await server.ask(
            f"POST /admin/drain HTTP/1.1\n{JSON}; charset=utf-8\nContent-Length: 2", b"{}"
        )
    assert answer.status == 200


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ("", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("Content-Type: text/plain", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("Content-Type: application/x-www-form-urlencoded", 415, "UNSUPPORTED_MEDIA_TYPE"),
        (f"{JSON}\nOrigin: http://evil.example", 403, "FORBIDDEN"),
        (f"{JSON}\nOrigin: null", 403, "FORBIDDEN"),
        (f"{JSON}\nOrigin: http://[", 403, "FORBIDDEN"),
        (f"{JSON}\nOrigin: http://127.0.0.1:9", 403, "FORBIDDEN"),
        (f"{JSON}\nOrigin: http://127.0.0.1", 200, None),
        (f"{JSON}\nOrigin: https://ops.example", 200, None),
    ],
)
async def test_writes_are_guarded_against_pages(headers: str, status: int, code: str | None) -> None:
    """An admin write that a foreign page can send is refused and changes nothing; ours is taken."""
    services = ready_services(make_config(Server(admin_hosts=("ops.example",))))
    async with serving(admin_app(services, None)) as server:
        answer = await server.ask(f"POST /admin/drain HTTP/1.1\n{headers}")
    assert (answer.status, answer.json().get("code")) == (status, code)
    assert services.gate.draining is (status == 200)


@pytest.mark.parametrize(
    ("bind", "host", "taken"),
    [
        ("127.0.0.1", "localhost:8081", True),
        ("127.0.0.1", "[::1]:8081", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "evil.example:8081", False),
        ("127.0.0.1", "192.0.2.1", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "OPS.example:99", True),
        ("0.0.0.0", "192.0.2.1:8081", True),
        ("0.0.0.0", "evil.example", False),
        ("10.0.0.5", "10.0.0.5:8081", True),
        ("10.0.0.5", "10.0.0.6:8081", False),
    ],
)
async def test_host_of_a_write_is_ours(bind: str, host: str, taken: bool) -> None:
    """An admin write needs a Host of the bind or of admin_hosts, so that a rebound name gets nowhere."""
    server_part = Server(admin_bind=Bind(bind, 8081), admin_hosts=("ops.example",))
    services = ready_services(make_config(server_part))
    async with serving(admin_app(services, TOKEN)) as server, await server.connect() as stream:
        head = (
            f"POST /admin/drain HTTP/1.1\r\nHost: {host}\r\n{JSON}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        )
        await stream.send_all(head.encode())
        with trio.fail_after(5):
            answer = await stream.receive_some(65536)
    assert answer.startswith(b"HTTP/1.1 200") is taken
    assert services.gate.draining is taken


@pytest.mark.parametrize(
    ("credential", "status"),
    [
        ("X-Nothing: here", 401),
        ("Authorization: Bearer wrong", 401),
        ("Authorization: Basic dDB0ZW4=", 401),
        ("Authorization: Bearer plain", 403),
        (f"x-api-key: {TOKEN}", 401),
        (f"Authorization: Bearer {TOKEN}", 200),
        ("Authorization: Bearer boss", 200),
    ],
)
async def test_public_admin_bind_needs_a_credential(credential: str, status: int) -> None:
    """With a non-loopback bind everything but the probes needs the admin token or an admin key; refusals are audited."""
    services = ready_services(public_bind())
    async with serving(admin_app(services, TOKEN)) as server:
        for path in ("/metrics", "/admin/upstreams", "/admin/queues", "/admin/drain"):
            answer = await server.ask(f"GET {path} HTTP/1.1\n{credential}")
            assert answer.status == status, path
            if status == 401:
                assert answer.headers["www-authenticate"] == "Bearer"
        for path in ("/livez", "/readyz"):
            assert (await server.ask(f"GET {path} HTTP/1.1\n{credential}")).status == 200
    refused = [refusal.http_status for refusal in emitter_of(services).refusals]
    assert refused == ([] if status == 200 else [status] * 4)


GUARDED = [
    (route.method, re.sub(r"{\w+}", "1", route.template))
    for route in ROUTES
    if route.name not in {"livez", "readyz"}
] + [("POST", "/admin/reclaim")]


@pytest.mark.parametrize(("method", "path"), GUARDED)
async def test_every_route_is_guarded(method: str, path: str) -> None:
    """Every route of a non-loopback admin bind but the probes needs a credential, and every write the content type that
    no page can send; the store is not asked (90)."""
    services = ready_services(public_bind(admin_hosts=("127.0.0.1",)))
    async with serving(admin_app(services, TOKEN)) as server:
        assert (await server.ask(f"{method} {path} HTTP/1.1")).status == 401
        assert (await server.ask(f"{method} {path} HTTP/1.1\nAuthorization: Bearer plain")).status == 403
        if method != "GET":
            answer = await server.ask(f"{method} {path} HTTP/1.1\nAuthorization: Bearer {TOKEN}")
            assert (answer.status, answer.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert not emitter_of(services).actions


async def test_reclaim() -> None:
    """POST /admin/reclaim makes one pass and says what it did; that it took something back is audited (AX-14)."""
    services = ready_services()
    passes = [Reclaimed(requeued=3, failed=1), Reclaimed()]

    async def reclaim() -> Reclaimed:
        await trio.lowlevel.checkpoint()
        return passes.pop(0)

    async with serving(admin_app(services, None, reclaim)) as server:
        answers = [await server.ask(f"POST /admin/reclaim HTTP/1.1\n{JSON}") for _ in range(2)]
    assert [(answer.status, answer.json()) for answer in answers] == [
        (200, {"requeued": 3, "failed": 1}),
        (200, {"requeued": 0, "failed": 0}),
    ]
    assert [action.action for action in emitter_of(services).actions] == ["reclaim"]


async def test_reclaim_while_it_is_suspended() -> None:
    """While the dead cannot be told from the living a pass is refused: 503, nothing was taken back (40)."""

    async def reclaim() -> Reclaimed:
        await trio.lowlevel.checkpoint()
        raise ReclaimSuspended

    async with serving(admin_app(ready_services(), None, reclaim)) as server:
        answer = await server.ask(f"POST /admin/reclaim HTTP/1.1\n{JSON}")
    assert (answer.status, answer.json()["code"]) == (503, "STORE_UNAVAILABLE")
    assert "nothing was taken back" in answer.json()["detail"]


async def test_no_token_configured_opens_nothing() -> None:
    """Without an admin token an empty one does not fit."""
    async with serving(admin_app(ready_services(public_bind()), None)) as server:
        assert (await server.ask("GET /admin/drain HTTP/1.1\nAuthorization: Bearer")).status == 401


async def test_operator_is_named_in_the_audit() -> None:
    """An action's actor is whose key it was, never the key."""
    services = ready_services(public_bind(admin_hosts=("127.0.0.1",)))
    async with serving(admin_app(services, TOKEN)) as server:
        await server.ask(f"POST /admin/drain HTTP/1.1\n{JSON}\nAuthorization: Bearer boss\nX-Request-Id: r1")
    [action] = emitter_of(services).actions
    assert (action.action, action.actor, action.trace_id) == ("drain", "ops", "r1")
