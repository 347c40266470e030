"""When connections die: idle ones, while a request is written, before an answer and within it."""

from typing import Final

from trio.testing import wait_all_tasks_blocked

from adapters.base import Kind
from adapters.testing import scripts
from adapters.testing.answers.behaviour import (
    LARGE,
    OWN,
    Behaviour,
    Delivered,
    Refused,
    broke_off,
    no_answer,
)
from adapters.testing.scripts import JSON, head, message
from adapters.testing.stub import Exchange, Script

_GOOD: Final = scripts.answer(OWN)
_EARLIER: Final = scripts.answer(b'{"text": "of an earlier call"}')
_PAUSE_S: Final = 0.001
"""How long the client has nothing to do before the server goes on. Shorter than what the check waits between calls."""
_TOO_LARGE: Final = message(b"too large", status=413)
_HEARD: Final = Refused(kind=Kind.PROVIDER_4XX, code="UPSTREAM_4XX", status=413, excerpt="too large")


def _sends_and_resets(data: bytes) -> Script:
    """Reset once the client has taken what was sent."""

    async def play(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.send(data)
        await wait_all_tasks_blocked(_PAUSE_S)
        await exchange.reset()

    return play


def _speaks_when_idle(data: bytes, *, and_closes: bool) -> Script:
    """Send more once the client has put the connection aside."""

    async def play(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.send(message(b"{}"))
        await wait_all_tasks_blocked(_PAUSE_S)
        await exchange.send(data)
        if and_closes:
            await exchange.close()

    return play


async def _closes_within_request(exchange: Exchange) -> None:
    await exchange.close()


async def _answers_and_reads_nothing(exchange: Exchange) -> None:
    await exchange.send(_TOO_LARGE)
    await exchange.reset()


STALE: Final = (
    Behaviour(
        name="closes the idle connection",
        before=scripts.sends_and_closes(message(b"{}")),
        plays=(_GOOD,),
        becomes=Delivered(),
    ),
    Behaviour(
        name="says 408 on the idle connection and closes it",
        before=_speaks_when_idle(message(b"", status=408), and_closes=True),
        plays=(_GOOD,),
        becomes=Delivered(),
    ),
    Behaviour(
        name="sends an answer on the idle connection",
        before=_speaks_when_idle(message(b'{"text": "of another call"}'), and_closes=False),
        plays=(_GOOD,),
        becomes=Delivered(),
    ),
    Behaviour(
        name="closes the used connection while the request is written",
        before=_EARLIER,
        plays=(_closes_within_request, _GOOD),
        becomes=Delivered(),
        document_bytes=LARGE,
    ),
    Behaviour(
        name="resets the used connection while the request is written",
        before=_EARLIER,
        plays=(scripts.resets_within_request(), _GOOD),
        becomes=Delivered(),
        document_bytes=LARGE,
    ),
    Behaviour(
        name="closes the replacement while the request is written",
        before=_EARLIER,
        plays=(_closes_within_request, _closes_within_request),
        becomes=no_answer(),
        document_bytes=LARGE,
    ),
    Behaviour(
        name="closes the used connection when it has the request",
        before=_EARLIER,
        plays=(scripts.closes_before_answer(),),
        becomes=no_answer(),
    ),
)

BEFORE_THE_ANSWER: Final = (
    Behaviour(
        name="closes a new connection while the request is written",
        plays=(_closes_within_request,),
        becomes=no_answer(),
        document_bytes=LARGE,
    ),
    Behaviour(
        name="closes when it has the request", plays=(scripts.closes_before_answer(),), becomes=no_answer()
    ),
    Behaviour(name="resets when it has the request", plays=(_sends_and_resets(b""),), becomes=no_answer()),
    Behaviour(
        name="resets within the head", plays=(_sends_and_resets(message(OWN)[:30]),), becomes=no_answer()
    ),
    Behaviour(
        name="answers while the request is written",
        plays=(scripts.answers_within_request(_TOO_LARGE),),
        becomes=_HEARD,
        document_bytes=LARGE,
    ),
    Behaviour(
        name="succeeds while the request is written",
        plays=(scripts.answers_within_request(message(OWN)),),
        becomes=Delivered(),
        document_bytes=LARGE,
    ),
    Behaviour(
        name="answers, reads nothing and resets",
        plays=(_answers_and_reads_nothing,),
        becomes=_HEARD,
        document_bytes=LARGE,
    ),
)

WITHIN_THE_ANSWER: Final = (
    Behaviour(
        name="resets before the body",
        plays=(_sends_and_resets(message(OWN)[: -len(OWN)]),),
        becomes=broke_off(),
    ),
    Behaviour(
        name="resets within a length", plays=(_sends_and_resets(message(OWN)[:-1]),), becomes=broke_off()
    ),
    Behaviour(
        name="resets at a chunk's edge",
        plays=(_sends_and_resets(head(200, {"Transfer-Encoding": "chunked"}) + b"2\r\n{}\r\n"),),
        becomes=broke_off(),
    ),
    Behaviour(
        name="resets where the end of the connection ends the body",
        plays=(_sends_and_resets(head(200, {"Content-Type": JSON}) + OWN),),
        becomes=broke_off(),
    ),
    Behaviour(name="resets after the answer", plays=(_sends_and_resets(message(OWN)),), becomes=Delivered()),
)

CONNECTION: Final[tuple[Behaviour, ...]] = (*STALE, *BEFORE_THE_ANSWER, *WITHIN_THE_ANSWER)
