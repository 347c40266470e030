"""A sender over the model store, and receivers that tests script."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import msgspec
import trio
from hook_making import KEY

from gateway.outage import Outage
from gateway.webhooks.letter import Letter
from gateway.webhooks.postman import ATTEMPT_S, Attempt
from gateway.webhooks.sender import Sender
from store.policy import StorePolicy
from store.testing.model import ModelStore, open_model
from store.testing.model_harness import trio_clock

OK = Attempt(http_status=204)
DOWN = Attempt(http_status=503)
SILENT = Attempt(reason="connection refused")
HOUR = 3600


class Posted(msgspec.Struct):
    """One attempt that was made."""

    at: float
    letter: Letter
    message: str
    key: bytes


class Receivers:
    """Stands for the postman: answers by script, the last one for ever."""

    def __init__(self, *answers: Attempt, took_s: float = 0.0) -> None:
        self.answers = list(answers)
        self.took_s = took_s
        self.posted: list[Posted] = []
        self.meanwhile: Callable[[Posted], object] = lambda _: None
        self.hung: set[str] = set()
        """Origins that give no answer until the attempt's time is up."""
        self.in_flight = 0
        self.peak = 0
        self._got: defaultdict[str, trio.Event] = defaultdict(trio.Event)

    async def got(self, job_id: str) -> None:
        """Return when the message about a job has been sent."""
        await self._got[job_id.replace("job_", "msg_")].wait()

    async def post(self, letter: Letter, message: str, key: bytes) -> Attempt:
        posted = Posted(trio.current_time(), letter, message, key)
        self.posted.append(posted)
        self._got[message].set()
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            if any(letter.url.startswith(each) for each in self.hung):
                await trio.sleep(ATTEMPT_S)
                return Attempt(reason="no answer")
            await trio.sleep(self.took_s)
            self.meanwhile(posted)
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        finally:
            self.in_flight -= 1

    @property
    def times(self) -> list[float]:
        return [posted.at for posted in self.posted]

    @property
    def jobs(self) -> list[str]:
        return [msgspec.json.decode(posted.letter.body)["data"]["job_id"] for posted in self.posted]


def sender_of(store: ModelStore, receivers: Receivers, **more) -> Sender:
    return Sender(store, receivers, more.pop("key_of", lambda _tenant: KEY), Outage(), chance=lambda: 0.0)


@asynccontextmanager
async def sending(receivers: Receivers, policy: StorePolicy | None = None, **more):
    """A store with a replica that delivers."""
    async with (
        open_model(policy or StorePolicy(), trio_clock, "replica-1") as store,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(sender_of(store, receivers, **more).run)
        yield store
        nursery.cancel_scope.cancel()


def pauses(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]
