"""What clients do with their jobs once they are accepted: cancel, hold, let go on, repeat, forget."""

import random
import time

import httpx2
import trio

from chaos.history import UPSTREAM, Act, Look, Verb, outcome_of
from chaos.plan import Errand, Step
from chaos.replica import Replica
from chaos.world import World

ANSWER_S = 3.0
"""How long a client waits for an answer, beside what it asked the server to wait. A frozen replica gives none."""
AGAIN_S = 0.1
LONGEST_AGAIN_S = 2.0
"""Between two asks for the same thing; doubled each time: an outage must not end in a storm."""
WAIT_MS = 3000


class Stories:
    """Carries out the steps of errands.

    Args:
        world: whom to ask.
        http: connections that all clients share.
        at_once: bounds the requests in flight.
    """

    def __init__(self, world: World, http: httpx2.AsyncClient, at_once: trio.CapacityLimiter) -> None:
        self.world = world
        self.history = world.history
        self._http = http
        self._at_once = at_once

    async def tell(self, errand: Errand, job_id: str) -> None:
        """Do all steps, each with the job that the one before has left; returns early when there is none."""
        rng = random.Random(f"story {errand.key}")
        for number, step in enumerate(errand.steps):
            await trio.sleep(step.after_s)
            if step.verb is Verb.RETRY and not await self._has_ended(job_id, errand.tenant, rng):
                return
            act = await self._do(step, job_id, errand, f"{errand.key}~{number}", rng)
            if not act.done and act.names is None:
                return
            job_id = act.names or job_id

    async def _do(self, step: Step, job_id: str, errand: Errand, name: str, rng: random.Random) -> Act:
        """Send the requests of a step; the answer to the first."""
        acts: list[Act] = []

        async def send(number: int, own: random.Random) -> None:
            acts.append(await self._until_settled(step.verb, job_id, errand.tenant, f"{name}.{number}", own))

        async with trio.open_nursery() as nursery:
            for number in range(step.times):
                nursery.start_soon(send, number, random.Random(rng.random()))
        # Of two that repeat a job only one is told 202, the other which job is there.
        return next((act for act in acts if act.names), acts[0])

    async def _until_settled(
        self, verb: Verb, job_id: str, tenant: str, name: str, rng: random.Random
    ) -> Act:
        pause_s = AGAIN_S
        while True:
            replica = self.world.somebody(rng)
            if replica is not None:
                async with self._at_once:
                    act = await act_on(
                        self._http, replica, verb, job_id, {"X-Tenant-Id": tenant, "X-Request-Id": name}
                    )
                self.history.acts.append(act)
                if act.settled and act.http_status != 429:
                    return act
            await trio.sleep(pause_s * rng.uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, LONGEST_AGAIN_S)

    async def _has_ended(self, job_id: str, tenant: str, rng: random.Random) -> bool:
        """Wait until a job has ended; False when there is none."""
        while True:
            await trio.sleep(AGAIN_S)
            replica = self.world.somebody(rng)
            if replica is None:
                continue
            look = await look_at(self._http, replica, job_id, tenant, wait_ms=WAIT_MS)
            if look is None:
                continue
            self.history.looks.append(look)
            if look.http_status == 404 or look.outcome is not None:
                return look.outcome is not None


async def act_on(
    http: httpx2.AsyncClient,
    replica: Replica,
    verb: Verb,
    job_id: str,
    headers: dict[str, str],
    *,
    at_last=False,
) -> Act:
    """Send one request that changes a job."""
    life, began = replica.life, time.time()
    path = f"{replica.url}/jobs/{job_id}"
    method, url = ("DELETE", path) if verb is Verb.DELETE else ("POST", f"{path}/{verb}")
    try:
        reply = await http.request(method, url, headers=headers, timeout=ANSWER_S)
    except (httpx2.TransportError, httpx2.UnsupportedProtocol):
        return Act(verb, job_id, life, began, time.time(), None, at_last=at_last)
    words = reply.json() if reply.content else {}
    told = words.get("code", words.get("status"))
    names = words.get("superseded_by")
    if verb is Verb.RETRY and reply.status_code == 202:
        names = words["job_id"]
    return Act(verb, job_id, life, began, time.time(), reply.status_code, told, names, at_last)


async def act_on_upstream(
    http: httpx2.AsyncClient, replica: Replica, verb: Verb, *, at_last: bool = False
) -> Act:
    """Pause the upstream for all, or let it go on."""
    life, began = replica.life, time.time()
    try:
        url = f"{replica.admin}/admin/upstreams/{UPSTREAM}/{verb}"
        reply = await http.post(url, json={}, timeout=ANSWER_S)
    except (httpx2.TransportError, httpx2.UnsupportedProtocol):
        return Act(verb, UPSTREAM, life, began, time.time(), None, at_last=at_last)
    # A request that is under way when its process ends has an empty answer.
    told = reply.json().get("code") if reply.content else None
    return Act(verb, UPSTREAM, life, began, time.time(), reply.status_code, told, at_last=at_last)


async def look_at(
    http: httpx2.AsyncClient, replica: Replica, job_id: str, tenant: str, *, wait_ms: int | None = None
) -> Look | None:
    """Read a job, or wait for it; None: no answer."""
    life, began = replica.life, time.time()
    route = "" if wait_ms is None else f"/wait?timeout={wait_ms}"
    try:
        reply = await http.get(
            f"{replica.url}/jobs/{job_id}{route}",
            headers={"X-Tenant-Id": tenant},
            timeout=ANSWER_S + (wait_ms or 0) / 1000,
        )
    except httpx2.TransportError:
        return None
    outcome = outcome_of(reply.json()) if reply.status_code == 200 else None
    return Look(job_id, life, began, time.time(), reply.status_code, outcome)
