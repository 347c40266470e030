"""The upstream: endpoints that take their time, sometimes refuse, and note every call.

A call's life is named by the path, which each life of a replica has for itself (`/ocr/<replica>.<life>`). What a call
does depends on the seed, the key and how often the key was called, so it does not depend on who calls.
"""

import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from adapters.testing.scripts import message
from adapters.testing.stub import Exchange, open_stub_upstream
from chaos.forms import Form
from chaos.history import RETRY_AFTER_S, Call, CallEnd, History, root_of
from chaos.plan import Fate

SLOW = 0.02
"""Share of the calls that take longer than the visibility timeout: only renewals keep their claims."""
TAKEN_OVER_S = (0.5, 3.0)
"""A call for a job that another replica has called for takes long: meanwhile that one may come back with its outcome."""
MEAN_S = 0.25
"""Of the other calls: long enough that most faults meet some."""


class Upstream:
    """All endpoints together.

    Args:
        form: of the run; has the visibility timeout.
        history: where the calls go.
        fates: key -> what becomes of its calls; a key that is not there is served.
    """

    def __init__(self, form: Form, history: History, fates: dict[str, Fate]) -> None:
        self.urls: list[str] = []
        self._form = form
        self._fates = fates
        self._answered: dict[str, trio.Event] = {}
        self._taken_over: dict[str, trio.Event] = {}
        self._latest: dict[str, str] = {}
        """Key -> the life that called for it last."""
        self._history = history
        self._times: Counter[str] = Counter()

    def open_calls(self) -> int:
        """Calls that have not ended."""
        return sum(call.ended is None for call in self._history.calls)

    def script(self, endpoint: int):
        """What an endpoint plays."""

        async def play(exchange: Exchange) -> None:
            await exchange.read_body()
            exchange.stub.requests.clear()
            call = self._arrived(exchange, self.urls[endpoint])
            seconds, end = self._fate(call)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_closed, exchange, nursery.cancel_scope)
                await trio.sleep(seconds)
                call.end = end
                nursery.cancel_scope.cancel("answered")
            # The work is over before the answer goes: whatever the answer causes comes after this moment.
            call.ended = time.time()
            if call.end is None:
                call.end = CallEnd.ABORTED
            elif call.end is CallEnd.RESET:
                await exchange.reset()
            else:
                await exchange.send(_ANSWERS[call.end](call))
                self._answered.pop(call.life, trio.Event()).set()

        return play

    async def answers(self, life: str) -> None:
        """Return when a life of a replica has been given an answer, from now on."""
        await self._answered.setdefault(life, trio.Event()).wait()

    async def takes_over(self, life: str) -> None:
        """Return when another life calls for a job that this one called for last, from now on."""
        await self._taken_over.setdefault(life, trio.Event()).wait()

    def _arrived(self, exchange: Exchange, endpoint: str) -> Call:
        request = exchange.request
        key = request.header("x-request-id") or ""
        body = request.body
        call = Call(
            number=len(self._history.calls) + 1,
            key=key,
            life=request.target.rpartition("/")[2],
            endpoint=endpoint,
            began=time.time(),
            intact=_is_of(body, key),
        )
        self._history.calls.append(call)
        return call

    def _fate(self, call: Call) -> tuple[float, CallEnd]:
        """How long a call takes, in seconds, and how it ends."""
        key = call.key
        self._times[key] += 1
        fate = self._fates.get(key, Fate.SERVED)
        end = _ENDS[fate] if fate is Fate.REFUSED or self._times[key] == 1 else CallEnd.ANSWERED
        rng = random.Random(f"call {key} {self._times[key]}")
        before = self._latest.get(key, call.life)
        self._latest[key] = call.life
        if before != call.life:
            self._taken_over.pop(before, trio.Event()).set()
            return rng.uniform(*TAKEN_OVER_S), end
        if rng.random() < SLOW:
            return rng.uniform(1.1, 1.6) * self._form.visibility_s, end
        return min(2.0, 0.01 + rng.expovariate(1 / MEAN_S)), end


_ENDS = {
    Fate.SERVED: CallEnd.ANSWERED,
    Fate.REFUSED: CallEnd.REFUSED,
    Fate.BUSY: CallEnd.BUSY,
    Fate.FAILED: CallEnd.FAILED,
    Fate.RESET: CallEnd.RESET,
}
_ANSWERS = {
    CallEnd.ANSWERED: lambda call: message(json.dumps({"call": call.number, "key": call.key}).encode()),
    CallEnd.REFUSED: lambda _: message(b'{"error": "this document cannot be read"}', status=400),
    CallEnd.BUSY: lambda _: message(
        b'{"error": "later"}', status=429, headers={"Retry-After": str(RETRY_AFTER_S)}
    ),
    CallEnd.FAILED: lambda _: message(b'{"error": "out of order"}', status=500),
}


def _is_of(body: bytes, key: str) -> bool:
    """Whether these are the bytes that were sent with a key, or those of the job that this one repeats."""
    first, _, filling = body.partition(b"\n")
    return first.decode() == root_of(key) and not filling.strip(b".")


async def _until_closed(exchange: Exchange, scope: trio.CancelScope) -> None:
    try:
        await exchange.wait_client_closed()
    except trio.BrokenResourceError:
        await exchange.close()
    scope.cancel("the caller closed")


@asynccontextmanager
async def open_upstream(form: Form, history: History, fates: dict[str, Fate]) -> AsyncIterator[Upstream]:
    """The endpoints of a run."""
    upstream = Upstream(form, history, fates)
    async with AsyncExitStack() as stack:
        for number, slots in enumerate(form.slots):
            stub = await stack.enter_async_context(open_stub_upstream(upstream.script(number)))
            upstream.urls.append(stub.url)
            history.slots[stub.url] = slots
        yield upstream
