"""Jobs that wait, for an upstream that is busy, for their next attempt, for their time, and a kill -9 meanwhile."""

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import httpx2
import trio
from gateway_process import PATIENCE_S, audit_events, running, submit, until_all_done, write_config
from redis_server import redis_server

from adapters.testing.scripts import message
from adapters.testing.stub import Exchange, open_stub_upstream

OK = message(b'{"text": "ok"}')
BUSY = message(b"busy", status=429, headers={"Retry-After": "1"})
BROKEN = message(b"broken", status=500)
SOON_S = 8.0
"""Long enough to kill a process meanwhile."""


class ByDocument:
    """What each document meets at each of its calls; an answer when nothing is left."""

    def __init__(self, **meets: list[bytes]) -> None:
        self.meets = meets
        self.called_at: dict[str, list[datetime]] = defaultdict(list)

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.read_body()
        name = exchange.request.body.decode()
        self.called_at[name].append(datetime.now(UTC))
        left = self.meets.get(name, [])
        await exchange.send(left.pop(0) if left else OK)


class Waiting:
    """Three jobs that wait, each for something else."""

    def __init__(self) -> None:
        self.upstream = ByDocument(busy=[BUSY, BUSY], broken=[BROKEN])
        self.ids: dict[str, str] = {}
        self.due = datetime.now(UTC)

    async def begin(self, client: httpx2.AsyncClient) -> None:
        """Submit them, and return when the first has waited and the others wait."""
        self.ids["busy"] = (await submit(client, b"busy"))["job_id"]
        [busy] = await until_all_done(client, [self.ids["busy"]])
        assert (busy["status"], busy["attempt"]) == ("completed", 1)
        assert [each["error_kind"] for each in busy["attempts"]] == ["rate_limit", "rate_limit", None]
        times = self.upstream.called_at["busy"]
        assert all(later - earlier >= timedelta(seconds=1) for earlier, later in pairwise(times))
        self.ids["broken"] = (await submit(client, b"broken"))["job_id"]
        await self._until_failed(client)
        self.due = datetime.now(UTC) + timedelta(seconds=SOON_S)
        later = await submit(client, b"later", **{"X-Run-At": self.due.isoformat()})
        self.ids["later"] = later["job_id"]

    async def _until_failed(self, client: httpx2.AsyncClient) -> None:
        with trio.fail_after(PATIENCE_S):
            while not (await client.get(f"/jobs/{self.ids['broken']}")).json()["attempts"]:  # noqa: ASYNC110  another process has no event
                await trio.sleep(0.02)

    async def end(self, client: httpx2.AsyncClient, killed_at: datetime) -> None:
        """All of them complete, each called as often as it had to be, and not before its time."""
        jobs = dict(zip(self.ids, await until_all_done(client, list(self.ids.values())), strict=True))
        assert {name: (job["status"], job["attempt"]) for name, job in jobs.items()} == {
            "busy": ("completed", 1),
            "broken": ("completed", 2),
            "later": ("completed", 1),
        }
        first, second = jobs["broken"]["attempts"]
        assert (first["outcome"], first["error_kind"]) == ("requeued", "provider_5xx")
        assert second["outcome"] == "completed"
        calls = self.upstream.called_at
        assert {name: len(times) for name, times in calls.items()} == {"busy": 3, "broken": 2, "later": 1}
        assert calls["broken"][1] - calls["broken"][0] >= timedelta(seconds=5)
        assert calls["later"][0] >= self.due
        assert calls["later"][0] > killed_at


def events(*folders: Path) -> Counter[str]:
    return Counter(event["job_id"] for folder in folders for event in audit_events(folder))


async def test_process_retries_outlive_a_kill(tmp_path):
    """An upstream that was busy twice is called a third time; a job in its backoff and one that waits for its run_at
    outlive a kill -9, keep their times, and complete with one event each (AX-5, AX-6, AX-18, GW-11 local)."""
    waiting = Waiting()
    async with open_stub_upstream(waiting.upstream) as stub:
        config = write_config(tmp_path, stub.url)
        async with running(config, tmp_path / "first.log") as gateway, gateway.client() as client:
            await waiting.begin(client)
            await gateway.kill()
        killed_at = datetime.now(UTC)
        async with running(config, tmp_path / "second.log") as gateway, gateway.client() as client:
            await waiting.end(client, killed_at)
            gateway.signal(15)
            assert await gateway.ended() == 0
    assert events(tmp_path) == dict.fromkeys(waiting.ids.values(), 1)


async def test_process_retries_go_on_at_another_replica(tmp_path):
    """The same on Redis, where the replica that ran the first attempts is killed and another one makes the later ones,
    while a third goes on answering (AX-5, AX-6, AX-18, GW-11)."""
    waiting = Waiting()
    with redis_server(appendonly="yes", appendfsync="always") as redis:
        shared = f"coordination: redis\nredis: {{url: '{redis.url}'}}"
        async with open_stub_upstream(waiting.upstream) as stub:
            folders = [tmp_path / name for name in ("api", "first", "second")]
            for folder in folders:
                folder.mkdir()
            api_config, *configs = [write_config(folder, stub.url, extra=shared) for folder in folders]
            async with (
                running(api_config, tmp_path / "api.log", "--role", "api") as api,
                api.client() as client,
            ):
                async with running(configs[0], tmp_path / "first.log", "--role", "worker") as first:
                    await waiting.begin(client)
                    await first.kill()
                killed_at = datetime.now(UTC)
                async with running(configs[1], tmp_path / "second.log", "--role", "worker") as second:
                    await waiting.end(client, killed_at)
                    second.signal(15)
                    assert await second.ended() == 0
                api.signal(15)
                assert await api.ended() == 0
    assert set(events(*folders)) == set(waiting.ids.values())
