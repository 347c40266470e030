"""Streams of events over sockets: how they are framed, how they end, and that nobody who left is watched for."""

import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
from http_harness import (
    Running,
    counted,
    limits,
    make_services,
    parse,
    read_to_end,
    read_until,
    serving,
    until,
    wire,
)

from gateway.http import sse
from gateway.http.admin import make_admin_app
from gateway.http.limits import ServerLimits
from gateway.http.public import make_public_app
from gateway.services import Current, Services
from store.job import Job
from store.policy import EndpointSlots, StorePolicy, UpstreamSlots
from store.testing.making import claim_one, complete, submit
from store.testing.model import ModelStore, open_model
from store.testing.model_harness import trio_clock
from store.values import Report

OCR = UpstreamSlots("ocr", (EndpointSlots("http://ocr-1:8868", 100),))
CHUNKED = "transfer-encoding: chunked"


class Served:
    """A public bind over the model store."""

    def __init__(self, running: Running, services: Services, store: ModelStore) -> None:
        self.running = running
        self.services = services
        self.store = store

    async def submitted(self) -> Job:
        return await submit(self.store, tenant="default", upstream="ocr")

    async def run_next(self) -> Job:
        return await complete(self.store, await claim_one(self.store, OCR))

    def watches(self) -> int:
        events = self.store.events
        return sum(map(len, (*events._watches.values(), *events._tenants.values())))


@asynccontextmanager
async def served(bounds: ServerLimits | None = None) -> AsyncIterator[Served]:
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        services = replace(make_services(), store=store, current=Current())
        async with serving(make_public_app(services), bounds) as running:
            yield Served(running, services, store)


async def ask(server: Served, path: str, method: str = "GET") -> trio.SocketStream:
    stream = await server.running.connect()
    await stream.send_all(wire(f"{method} {path} HTTP/1.1"))
    return stream


@pytest.mark.parametrize("slash", ["", "/"])
async def test_events_are_streamed_as_they_come(slash: str) -> None:
    """An event is sent when it happens, in a chunk of its own; the connection outlives the stream. By both ways."""
    async with served() as server:
        job = await server.submitted()
        async with await ask(server, f"/jobs/{job.id}/events{slash}") as stream:
            head = (await read_until(stream, b'"result":null}\n\n\r\n')).decode().lower()
            for line in (
                *("http/1.1 200", CHUNKED, "content-type: text/event-stream", "cache-control: no-store"),
                *("x-accel-buffering: no", f"x-request-id: {job.trace_id}", "retry: 3000", "event: snapshot"),
            ):
                assert line in head
            claimed = await claim_one(server.store, OCR)
            await read_until(stream, b"event: job.processing")
            await complete(server.store, claimed)
            assert (await read_until(stream, b"\r\n0\r\n\r\n")).count(b"event: ") == 1
            assert server.watches() == 0
            await until(lambda: counted(server.services, "GET", "/jobs/{job_id}/events", 200) == 1)
            await stream.send_all(wire(f"GET /jobs/{job.id} HTTP/1.1"))
            await read_until(stream, b'"status":"completed"')


async def test_operators_follow_on_their_own_bind() -> None:
    """On the admin bind the streams are those of every tenant, or of the one that is named (GW-12)."""
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        services = replace(make_services(), store=store, current=Current())
        async with serving(make_admin_app(services, None, store.jobs.reclaim)) as running:
            server = Served(running, services, store)
            async with (
                await ask(server, "/admin/events") as everything,
                await ask(server, "/admin/events?tenant=acme") as one,
            ):
                for stream in (everything, one):
                    await read_until(stream, b"event: hello")
                foreign = await server.submitted()
                own = await submit(store, tenant="acme", upstream="ocr")
                assert foreign.id in (await read_until(everything, own.id.encode())).decode()
                assert foreign.id not in (await read_until(one, own.id.encode())).decode()
            async with await ask(server, f"/admin/jobs/{own.id}/events") as stream:
                await read_until(stream, b'"tenant":"acme"')


@pytest.mark.parametrize("path", ["/events", "/events/", "/jobs/{}/events", "/jobs/{}/events/"])
async def test_head_of_a_stream(path: str) -> None:
    """HEAD has the headers of the stream, no body, and leaves no watch."""
    async with served() as server:
        job = await server.submitted()
        answer = await server.running.ask(f"HEAD {path.format(job.id)} HTTP/1.1")
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
        assert (answer.headers["x-accel-buffering"], answer.body) == ("no", b"")
        assert server.watches() == 0


async def test_methods_of_streams() -> None:
    """Streams are got; another method is 405, and no stream begins."""
    async with served() as server:
        for path in ("/events", "/jobs/job_1/events"):
            answer = await server.running.ask(f"POST {path} HTTP/1.1")
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_http_1_0_client_has_a_stream_that_ends_with_the_connection() -> None:
    """A client that knows no chunks is sent the events as they are."""
    async with served() as server:
        job = await server.submitted()
        await server.run_next()
        async with await server.running.connect() as stream:
            await stream.send_all(f"GET /jobs/{job.id}/events HTTP/1.0\r\n\r\n".encode())
            answer = parse(await read_to_end(stream))
        assert "transfer-encoding" not in answer.headers
        assert answer.body.endswith(b"\n\n")
        assert answer.body.count(b"event: ") == 2


async def leave(server: Served, paths: list[str], chance: random.Random) -> None:
    """Follow something, and hang up at any moment, in one of the ways in which that is done."""
    stream = await server.running.connect()
    request = wire(f"GET {chance.choice(paths)} HTTP/1.1")
    match chance.randrange(5):
        case 0:
            await stream.send_all(request[: chance.randrange(1, len(request))])
        case 1:
            await stream.send_all(request)
        case 2:
            await stream.send_all(request)
            with trio.move_on_after(chance.random() / 50):
                await stream.receive_some(chance.randrange(1, 200))
        case 3:
            await stream.send_all(request + b"G" * chance.randrange(3))
            await trio.sleep(chance.random() / 50)
        case _:
            await stream.send_all(request)
            await stream.send_eof()
    if chance.random() < 0.3:
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # close with a reset
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    await stream.aclose()


@pytest.mark.parametrize("seed", range(2))
async def test_whoever_left_is_watched_for_no_longer(seed: int) -> None:
    """After 200 disconnects at random moments, while jobs change, no watch is left in the store."""
    chance = random.Random(seed)
    async with served() as server:
        jobs = [await server.submitted() for _ in range(8)]
        paths = [
            "/events",
            "/events/",
            *(f"/jobs/{job.id}/events" for job in jobs),
            f"/jobs/{jobs[0].id}/wait",
        ]

        async def change() -> None:
            claims = [await claim_one(server.store, OCR) for _ in jobs]
            while True:
                for claim in claims:
                    await server.store.jobs.report(
                        claim.job.id, claim.token, Report(str(chance.random()), 0.5)
                    )
                await trio.sleep(0.001)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            async with trio.open_nursery() as clients:
                for _ in range(200):
                    clients.start_soon(leave, server, paths, chance)
                    await trio.sleep(chance.random() / 500)
            await until(lambda: server.watches() == 0)
            nursery.cancel_scope.cancel()
        async with await ask(server, "/events") as stream:
            await read_until(stream, b"event: hello")
            assert server.watches() == 1


async def test_client_that_reads_nothing_is_given_up() -> None:
    """Who takes nothing of what is sent is cut after the time of one send, and meanwhile no more is made than one piece."""
    async with served(limits(send_timeout_s=0.3)) as server:
        job = await server.submitted()
        claimed = await claim_one(server.store, OCR)
        stage = "x" * 4_000_000
        async with await ask(server, "/events") as stream:
            await read_until(stream, b"event: hello")
            assert server.watches() == 1
            reads = []
            changes = server.store.jobs.changes

            async def noted(*args: object, **more: object) -> object:
                reads.append(args)
                return await changes(*args, **more)

            server.store.jobs.changes = noted
            for n in range(200):
                await server.store.jobs.report(job.id, claimed.token, Report(stage + str(n), 0.5))
                await trio.sleep(0.001)
            await until(lambda: server.watches() == 0)
            assert len(reads) < 10


async def test_drain_ends_streams_in_order() -> None:
    """When a drain has worked off, streams are ended and not cut, so the shutdown is immediate."""
    async with served(limits(graceful_s=1000)) as server:
        job = await server.submitted()
        streams = [await ask(server, path) for path in ("/events", f"/jobs/{job.id}/events", "/events/")]
        for stream in streams:
            await read_until(stream, b"event: ")
        server.services.gate.close()
        server.services.gate.worked_off.set()
        for stream in streams:
            await read_until(stream, b"0\r\n\r\n")
        server.running.shut_down.set()
        with trio.fail_after(10):
            await server.running.ended.wait()
        for stream in streams:
            assert await read_to_end(stream) == b""
            await stream.aclose()


async def test_store_that_has_closed_cuts_a_stream() -> None:
    """A store that will not answer again in this process ends the stream without its last chunk: the client comes again."""
    async with served() as server:
        await server.submitted()
        async with await ask(server, "/events") as stream:
            await read_until(stream, b"event: hello")
            other = server.store.join("replica-2")
            server.store.close()
            await claim_one(other, OCR)
            assert not (await read_to_end(stream)).endswith(b"0\r\n\r\n")
        await until(lambda: server.watches() == 0)


async def test_idle_stream_is_kept_up_by_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream on which nothing happens is neither taken for an idle connection nor silent."""
    monkeypatch.setattr(sse, "HEARTBEAT_S", 0.02)
    async with (
        served(limits(keep_alive_s=0.05, read_timeout_s=0.05)) as server,
        await ask(server, "/events") as stream,
    ):
        data = b""
        while data.count(b": alive\n\n") < 10:
            data += await read_until(stream, b"\n")
