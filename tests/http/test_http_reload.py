"""A reload as requests see it, and as it fails."""

from dataclasses import replace

import pytest
import trio
from http_harness import make_app, make_config, make_services, serving
from test_http_admin import admin_app, ready_services, store_of

from gateway.config import ConfigError, Loaded, load_config
from gateway.config.schema import Server
from gateway.http.message import Reply, json_reply
from gateway.http.public import make_public_app
from gateway.http.routing import Route
from gateway.reloading import Reloader
from gateway.services import Derived
from store.errors import StoreUnavailable

WRITE = "\nContent-Type: application/json\nContent-Length: 0"
FILE = """
server: {{bind: 127.0.0.1:1, default_tenant: {tenant}}}
upstreams:
  - {{name: {name}, type: ocr-http, adapter: sync-http, class: on_prem, models: [m], submit_path: /ocr, endpoints: [{{url: "http://a", slots: 1}}]}}
"""


async def test_reload_a_request_sees_one_configuration() -> None:
    """A request sees the configuration in force when it began to its end; the next one sees the new one."""
    entered, released = trio.Event(), trio.Event()

    async def tell(services, _request) -> Reply:
        before = services.config.server.default_tenant
        entered.set()
        await released.wait()
        return json_reply([before, services.config.server.default_tenant])

    services = make_services(make_config(Server(default_tenant="old")))
    answers = []
    async with serving(make_app(Route("GET", "/tell", tell, "tell"), services=services)) as server:

        async def ask() -> None:
            answers.append((await server.ask("GET /tell HTTP/1.1")).json())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await entered.wait()
            services.current.services = replace(services, config=make_config(Server(default_tenant="new")))
            released.set()
        await ask()
    assert answers == [["old", "old"], ["new", "new"]]


async def test_reload_callers_are_known_by_the_configuration_in_force() -> None:
    """Who is asking is decided by the tenants, hosts and keys of the configuration in force, on both binds."""
    services = ready_services(make_config(Server(default_tenant=None)))
    later = replace(services, config=make_config(Server(default_tenant="t", admin_hosts=("gw.example",))))
    async with serving(make_public_app(services)) as public, serving(admin_app(services, None)) as admin:
        assert (await public.ask("GET /jobs/x HTTP/1.1")).status == 400
        services.current.services = later
        assert (await public.ask("GET /jobs/x HTTP/1.1")).status != 400
        guarded = await admin.ask(f"DELETE /admin/drain HTTP/1.1{WRITE}\nOrigin: http://gw.example")
        assert guarded.status == 200


def test_reload_what_follows_is_made_once_for_each_configuration() -> None:
    """Something derived is the same object until another configuration is in force."""
    services, made = make_services(), []
    derived = Derived(services, lambda latest: made.append(latest) or latest)
    assert derived.now is derived.now is services
    services.current.services = other = replace(services)
    assert derived.now is other
    assert made == [services, other]


async def test_reload_without_a_file_is_told() -> None:
    """A gateway that was started without a file has nothing to read again."""
    async with serving(admin_app(ready_services(), None)) as server:
        assert (await server.ask(f"POST /admin/reload HTTP/1.1{WRITE}")).status == 404


class Reloading:
    """A reloader whose file is in place."""

    def __init__(self, folder) -> None:
        self.path = folder / "gateway.yaml"
        self.write("one")
        loaded: Loaded = load_config(self.path, {})
        self.services = make_services(loaded.config)
        self.told = []
        self.reloader = Reloader(loaded, "all", self.services.current, self.prepare)
        self.tenants = []
        store_of(self.services).set_tenants = self.tenants.append

    def write(self, name: str, tenant: str = "default") -> None:
        self.path.write_text(FILE.format(name=name, tenant=tenant))

    def prepare(self, loaded, health):
        return lambda: self.told.append((loaded.config, health))

    def untouched(self) -> bool:
        return (
            self.services.latest is self.services
            and [each.upstream.name for each in self.services.health] == ["one"]
            and self.reloader.loaded.config is self.services.config
            and not self.tenants
            and not self.told
        )


async def test_reload_puts_all_of_it_in_force(tmp_path) -> None:
    """Configuration, registry, health and tenants' limits change together, and whoever else follows is told then."""
    reloading = Reloading(tmp_path)
    reloading.write("two", "other")
    reloaded = await reloading.reloader.reload()
    assert reloaded.changed == ["server.default_tenant", "upstreams.one", "upstreams.two"]
    latest = reloading.services.latest
    assert latest.config.server.default_tenant == "other"
    assert latest.registry.served() == {"two"}
    assert [each.upstream.name for each in latest.health] == ["two"]
    assert reloading.told == [(latest.config, latest.health)]
    assert len(reloading.tenants) == 1
    assert latest.store is reloading.services.store
    assert (await reloading.reloader.reload()).changed == []


async def test_reload_that_is_cancelled_changes_nothing(tmp_path) -> None:
    """The process may end while a reload asks the store, which answers all the same: nothing is put in force any more."""
    reloading = Reloading(tmp_path)
    reloading.write("two")
    counts = store_of(reloading.services).jobs.counts
    with trio.CancelScope() as ending:

        async def answer_all_the_same():
            ending.cancel()
            with trio.CancelScope(shield=True):
                return await counts()

        store_of(reloading.services).jobs.counts = answer_all_the_same
        await reloading.reloader.reload()
    assert ending.cancelled_caught
    assert reloading.untouched()


async def test_reload_that_fails_changes_nothing(tmp_path) -> None:
    """A store without an answer, certificates that cannot be read and a file with faults leave everything as it was."""
    reloading = Reloading(tmp_path)
    reloading.write("two")
    counts = store_of(reloading.services).jobs.counts

    async def away():
        await trio.lowlevel.checkpoint()
        raise StoreUnavailable("away", outcome="not_done")

    store_of(reloading.services).jobs.counts = away
    with pytest.raises(StoreUnavailable):
        await reloading.reloader.reload()
    assert reloading.untouched()
    store_of(reloading.services).jobs.counts = counts

    def fail(_loaded, _health):
        raise FileNotFoundError("no such certificate")

    reloading.reloader._prepare = fail
    with pytest.raises(ConfigError, match="no such certificate"):
        await reloading.reloader.reload()
    assert reloading.untouched()
    reloading.path.write_text("upstreams: []")
    with pytest.raises(ConfigError):
        await reloading.reloader.reload()
    assert reloading.untouched()
