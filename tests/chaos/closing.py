"""The last look: waits until all has settled, reads everything that can be read, drains all replicas."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2
import trio

from chaos.history import Closing, Verb, outcome_of
from chaos.plan import TENANTS
from chaos.stories import act_on, act_on_upstream
from chaos.world import World

LOOK_AGAIN_S = 0.2
PATIENCE_S = 60.0
CONCURRENT = 8
UNFINISHED = "status=queued&status=processing&status=paused&status=interrupted"
METRICS = (
    "gateway_slots_in_use",
    "gateway_slot_waiters",
    "gateway_queue_depth",
    "gateway_jobs_delayed",
    "gateway_jobs_total",
    "gateway_audit_dropped_total",
    "gateway_lease_release_failures_total",
    "gateway_outcomes_dropped_total",
    "gateway_store_rolled_back_total",
)
"""What is read of each replica's metrics, summed over labels."""


class Auditor:
    """Whoever looks at the end. Everything was healed before.

    Args:
        world: at rest.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.closing: Closing = world.history.closing
        self._http = httpx2.AsyncClient(timeout=30, trust_env=False)

    async def run(self) -> None:
        """Wait, read, drain, and read what the drain has left."""
        form = self.world.form
        async with self._http:
            await self._end_pause()
            await self._settled("jobs still unfinished", form.settle_s, self._all_ended)
            await self._settled("slots still held", form.visibility_s + 12, self._all_free)
            await self._read_jobs()
            await self._read_admin()
            self.closing.census = await self.world.backing.census()
            await self._settled("audit events missing", form.audit_s, self._all_audited)
        await self._drain()
        self._read_audit()
        self._read_names()
        after = await self.world.backing.census()
        if after is not None:
            self.closing.census = after

    async def _end_pause(self) -> None:
        """Let the upstream go on if it is still paused: by a request that came after its sender had given up."""
        for upstream in (await self._admin(0, "/admin/upstreams"))["upstreams"]:
            if upstream["paused"]:
                act = await act_on_upstream(self._http, self.world.replicas[0], Verb.RESUME, at_last=True)
                self.world.history.acts.append(act)

    async def _settled(self, what: str, seconds: float, done: Callable[[], Awaitable[int]]) -> None:
        """Wait until a count is 0; note what is left when it does not come to it."""
        left = -1
        with trio.move_on_after(seconds):
            while left := await done():  # noqa: ASYNC110  other processes have no event for us
                await trio.sleep(LOOK_AGAIN_S)
        if left and what != "audit events missing":
            self.closing.overdue += f"{left} {what} after {seconds:g} s; "

    async def _all_ended(self) -> int:
        for tenant in TENANTS:
            page = await self._get(0, f"/jobs?limit=500&{UNFINISHED}", tenant)
            for job in page["data"]:
                if job["status"] == "paused":
                    await self._let_go_on(job["job_id"], tenant)
            if page["data"]:
                return len(page["data"])
        return 0

    async def _let_go_on(self, job_id: str, tenant: str) -> None:
        """Resume a job that nobody else will: a request to pause it was carried out after its client had given up."""
        headers = {"X-Tenant-Id": tenant}
        act = await act_on(self._http, self.world.replicas[0], Verb.RESUME, job_id, headers, at_last=True)
        self.world.history.acts.append(act)

    async def _all_free(self) -> int:
        return sum([await self._in_use(number) for number in range(len(self.world.replicas))])

    async def _in_use(self, number: int) -> int:
        return sum(
            upstream["in_use"] for upstream in (await self._admin(number, "/admin/upstreams"))["upstreams"]
        )

    async def _all_audited(self) -> int:
        self._read_audit()
        return len(set(self.closing.jobs) - {event["job_id"] for _, event in self.closing.events})

    async def _read_jobs(self) -> None:
        """All jobs: in lists, and each by itself from two replicas."""
        found = []
        for tenant in TENANTS:
            async for job in self._listed(tenant):
                self.closing.listed[job["job_id"]] = job
                found.append((job["job_id"], tenant))
        for ask in self.world.history.accepted():
            if ask.job_id is not None and ask.job_id not in self.closing.listed:
                found += [(ask.job_id, tenant) for tenant in TENANTS]
        queue = iter(found)
        async with trio.open_nursery() as nursery:
            for _ in range(CONCURRENT):
                nursery.start_soon(self._reader, queue)

    async def _reader(self, queue) -> None:
        replicas = len(self.world.replicas)
        for turn, (job_id, tenant) in enumerate(queue):
            first = await self._get(turn % replicas, f"/jobs/{job_id}", tenant)
            second = await self._get((turn + 1) % replicas, f"/jobs/{job_id}", tenant)
            if "job_id" in first and "status" in first and isinstance(first["status"], str):
                self.closing.jobs[job_id] = first
                self.closing.again[job_id] = outcome_of(second) or ()

    async def _listed(self, tenant: str) -> AsyncIterator[dict]:
        after = ""
        while True:
            page = await self._get(0, f"/jobs?limit=500{after}", tenant)
            for job in page["data"]:
                yield job
            if not page["has_more"]:
                return
            after = f"&after={page['next']}"

    async def _read_admin(self) -> None:
        closing = self.closing
        for replica in self.world.replicas:
            number, life = replica.number, replica.life
            for upstream in (await self._admin(number, "/admin/upstreams"))["upstreams"]:
                closing.in_use[f"{life} slots of {upstream['name']}"] = upstream["in_use"]
                for name in ("waiting", "queued"):
                    closing.in_use[f"{life} {name} at {upstream['name']}"] = sum(upstream[name].values())
            queues = await self._admin(number, "/admin/queues")
            for name in ("queued", "processing", "delayed", "paused", "interrupted"):
                closing.in_use[f"{life} {name}"] = queues[name]
            closing.terminal = sum(queues["terminal"].values())
            text = (await self._http.get(f"{replica.admin}/metrics")).text
            for name in METRICS:
                closing.gauges[f"{life} {name}"] = total_of(text, name)

    async def _drain(self) -> None:
        self.world.over = True
        async with trio.open_nursery() as nursery:
            for replica in self.world.replicas:
                nursery.start_soon(self._drain_one, replica)

    async def _drain_one(self, replica) -> None:
        async with replica.struck:
            await replica.drain()

    def _read_audit(self) -> None:
        events = [
            (replica.number, json.loads(line))
            for replica in self.world.replicas
            for path in replica.audit_files
            for line in path.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]
        # What people did is told as well, each time that they did it.
        self.closing.events = [(number, event) for number, event in events if "action" not in event]

    def _read_names(self) -> None:
        """Which life gave itself which replica id, out of the logs; and what they say of reloads."""
        for replica in self.world.replicas:
            for life in range(1, replica.lives + 1):
                for line in replica.log(life).read_text().splitlines():
                    if '"configuration refused' in line:
                        self.world.history.refused_reloads.append(f"{replica.number}.{life}: {line}")
                    if '"store opened"' in line:
                        self.closing.replicas[json.loads(line)["replica"]] = f"{replica.number}.{life}"

    async def _get(self, number: int, path: str, tenant: str) -> dict:
        return await self._ask(number, path, {"X-Tenant-Id": tenant})

    async def _admin(self, number: int, path: str) -> dict:
        return await self._ask(number, path, None)

    async def _ask(self, number: int, path: str, headers: dict[str, str] | None) -> dict:
        """An answer in JSON. A replica that crashed meanwhile is asked again when it is back."""
        replica = self.world.replicas[number]
        with trio.fail_after(PATIENCE_S):
            while True:
                try:
                    bind = replica.admin if headers is None else replica.url
                    reply = await self._http.get(f"{bind}{path}", headers=headers)
                except (httpx2.TransportError, httpx2.UnsupportedProtocol):
                    await trio.sleep(LOOK_AGAIN_S)
                else:
                    return reply.json()


def total_of(exposition: str, name: str) -> float:
    """The sum of a metric's samples."""
    lines = (line for line in exposition.splitlines() if line.startswith((f"{name} ", f"{name}{{")))
    return sum(float(line.rpartition(" ")[2]) for line in lines)
