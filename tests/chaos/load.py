"""Clients: submitters that come whether or not the last one was served, pollers, and waiters with long polls."""

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx2
import trio

from chaos.history import Answer, Ask
from chaos.plan import Errand
from chaos.replica import Replica
from chaos.stories import AGAIN_S, ANSWER_S, LONGEST_AGAIN_S, Stories, look_at
from chaos.world import World

AT_ONCE = 64
"""Asks in flight: enough that one frozen replica does not hold up the load."""
LOOK_EVERY_S = 0.12
LATEST = 60
"""Pollers and waiters prefer the jobs that were accepted last."""


@dataclass(frozen=True)
class Terms:
    """What a job waits for."""

    follows: tuple[str, ...]
    """Jobs that have to complete first."""
    not_before: float | None


class Promise:
    """The job that an errand brings about, for those that wait to name it."""

    def __init__(self) -> None:
        self._known = trio.Event()
        self._job_id: str | None = None

    def keep(self, job_id: str | None) -> None:
        """Make it known; None: there is none that its client knows of."""
        self._job_id = job_id
        self._known.set()

    async def kept(self) -> str | None:
        """The job, once it is known."""
        await self._known.wait()
        return self._job_id


class Clients:
    """All clients of a run, over connections that they share.

    Args:
        world: whom to ask.
        seed: of their choices.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.history = world.history
        self.seed = seed
        self.known: list[tuple[str, str]] = []
        """(job id, tenant) of what was accepted."""
        self._at_once = trio.CapacityLimiter(AT_ONCE)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=50)
        self._http = httpx2.AsyncClient(timeout=ANSWER_S, trust_env=False, limits=limits)
        self._stories = Stories(world, self._http, self._at_once)
        self._promises: dict[str, Promise] = {}

    async def run(self, errands: tuple[Errand, ...]) -> None:
        """Submit everything; returns when each errand was accepted or given up. Others look on meanwhile."""
        form = self.world.form
        began = trio.current_time()
        async with self._http, trio.open_nursery() as onlookers:
            for number in range(form.pollers):
                onlookers.start_soon(
                    self._for_ever, self._poll, random.Random(f"poller {self.seed} {number}")
                )
            for number in range(form.waiters):
                onlookers.start_soon(
                    self._for_ever, self._wait, random.Random(f"waiter {self.seed} {number}")
                )
            self._promises = {errand.key: Promise() for errand in errands}
            async with trio.open_nursery() as nursery:
                for errand in errands:
                    await trio.sleep_until(began + errand.at_s)
                    not_before = None if errand.delay_s is None else round(time.time() + errand.delay_s, 3)
                    for number in range(errand.asks_at_once):
                        nursery.start_soon(self._bring, errand, number, not_before)
            onlookers.cancel_scope.cancel("everything is submitted, and every story told")

    async def _bring(self, errand: Errand, number: int, not_before: float | None) -> None:
        """One client of an errand: submit it; the first one has plans for its job."""
        follows = [await self._promises[key].kept() for key in errand.follows]
        job_id = await self._submit(
            errand,
            Terms(tuple(job for job in follows if job is not None), not_before),
            random.Random(f"{errand.key} {number}"),
        )
        if number == 0:
            self._promises[errand.key].keep(job_id)
            if job_id is not None:
                await self._stories.tell(errand, job_id)

    async def _submit(self, errand: Errand, terms: Terms, rng: random.Random) -> str | None:
        """Ask until a job is promised, always with the same key. Returns its id; None: the client has given up."""
        pause_s = AGAIN_S
        while True:
            replica = self.world.somebody(rng)
            if replica is not None:
                async with self._at_once:
                    ask = await self._ask(errand, terms, replica)
                self.history.asks.append(ask)
                if ask.job_id is not None and ask.answer is Answer.ACCEPTED:
                    self.known.append((ask.job_id, errand.tenant))
                    return ask.job_id
                if ask.answer is Answer.WRONG or (ask.answer is Answer.UNKNOWN and errand.gives_up):
                    return None
            await trio.sleep(pause_s * rng.uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, LONGEST_AGAIN_S)

    async def _ask(self, errand: Errand, terms: Terms, replica: Replica) -> Ask:
        life, began = replica.life, time.time()
        headers = {
            "Content-Type": "application/octet-stream",
            "Idempotency-Key": errand.key,
            "X-Max-Attempts": str(errand.max_attempts),
            "X-Model": "ocr",
            "X-Priority": str(errand.priority),
            "X-Request-Id": errand.key,
            "X-Tenant-Id": errand.tenant,
        }
        if errand.wait_s is not None:
            headers["Prefer"] = f"wait={errand.wait_s}"
        if terms.not_before is not None:
            headers["X-Run-At"] = datetime.fromtimestamp(terms.not_before, UTC).isoformat(
                timespec="milliseconds"
            )
        timeout_s = ANSWER_S + (errand.wait_s or 0)
        url = f"{replica.url}/jobs"
        heard: tuple[Answer, str | None, str]
        try:
            reply = await self._http.post(
                url,
                params={"after": ",".join(terms.follows)} if terms.follows else {},
                content=errand.document,
                headers=headers,
                timeout=timeout_s,
            )
        except httpx2.TransportError as error:
            heard = Answer.UNKNOWN, None, type(error).__name__
        else:
            heard = understood(reply.status_code, reply.content, reply.json)
        return Ask(errand.key, life, began, time.time(), *heard, terms.follows, terms.not_before)

    async def _for_ever(self, look: Callable[..., Awaitable[None]], rng: random.Random) -> None:
        while True:
            await trio.sleep(LOOK_EVERY_S)
            replica = self.world.somebody(rng)
            if replica is not None and self.known:
                await look(rng, replica)

    async def _poll(self, rng: random.Random, replica: Replica) -> None:
        job_id, tenant = rng.choice(self.known if rng.random() < 0.3 else self.known[-LATEST:])
        await self._look(replica, job_id, tenant, None)

    async def _wait(self, rng: random.Random, replica: Replica) -> None:
        job_id, tenant = rng.choice(self.known[-LATEST:])
        await self._look(replica, job_id, tenant, rng.randrange(200, 6000))

    async def _look(self, replica: Replica, job_id: str, tenant: str, wait_ms: int | None) -> None:
        look = await look_at(self._http, replica, job_id, tenant, wait_ms=wait_ms)
        if look is None:
            return
        self.history.looks.append(look)
        if look.http_status not in {200, 404, 503}:
            self.history.oddities.append(f"a read of {job_id} at {look.life}: {look.http_status}")


def understood(status: int, body: bytes, parsed: Callable[[], dict]) -> tuple[Answer, str | None, str]:
    """What an answer to a submit means: (answer, job id, in words)."""
    if status in {200, 202}:
        return Answer.ACCEPTED, parsed()["job_id"], ""
    if status in {429, 503}:
        problem = parsed()
        named = problem.get("job_id")
        return (Answer.UNKNOWN if named else Answer.REFUSED), named, problem["code"]
    return Answer.WRONG, None, f"{status} {body[:300]!r}"
