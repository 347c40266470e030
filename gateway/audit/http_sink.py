"""The sink that posts batches of lines to a receiver.

    POST <url>   Content-Type: application/x-ndjson   Authorization: Bearer <token>
    one event a line; a batch is bounded by number and by bytes

- 2xx and a whole answer: the receiver has the batch. Anything else, a redirect too, and no answer within the bounds: it is offered again,
  from its first line. So a receiver may get a line twice; `event_id` tells.
- A line longer than a batch may be goes alone.
- Redirects are not followed and proxies of the environment not used: events and token go to the named host only.
"""

import hashlib
from collections import deque
from collections.abc import Set as AbstractSet
from typing import Final

import httpx2
import trio

from gateway.audit.batches import NotTaken, batch_of
from gateway.audit.bodies import Line

CONNECT_S: Final = 5.0
SILENCE_S: Final = 10.0
"""Longest wait for the next byte to be taken or to come."""
POST_S: Final = 30.0
"""One batch, from connecting to the end of the answer."""


class HttpSink:
    """Lines by POST.

    Args:
        url: of the receiver.
        token: sent as bearer token; None: none is.
    """

    name = "http"

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url
        headers = {"Content-Type": "application/x-ndjson"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._headers = headers
        self._client: httpx2.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"<HttpSink to {httpx2.URL(self._url).host}>"

    @property
    def key(self) -> str:
        """By a hash of the URL: some receivers have a secret in theirs."""
        return f"http:{hashlib.sha256(self._url.encode()).hexdigest()[:16]}"

    async def open(self) -> None:
        """Make a client. The receiver need not be there: events wait for it."""
        await trio.lowlevel.checkpoint()
        self._client = httpx2.AsyncClient(
            headers=self._headers,
            timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=1),
            follow_redirects=False,
            trust_env=False,
        )

    async def known(self, event_ids: AbstractSet[str]) -> AbstractSet[str]:  # noqa: ARG002  # the contract's signature
        """None: the receiver cannot be asked."""
        await trio.lowlevel.checkpoint()
        return frozenset()

    async def write(self, lines: deque[Line]) -> None:
        """Post in batches.

        Raises:
            NotTaken: the receiver refused, or gave no answer in time.
        """
        await trio.lowlevel.checkpoint()
        while lines:
            batch = batch_of(lines)
            await self._post(b"".join(line.data + b"\n" for line in batch))
            for _ in batch:
                lines.popleft()

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()

    async def _post(self, body: bytes) -> None:
        if self._client is None:
            raise RuntimeError("the sink is not open")
        try:
            with trio.fail_after(POST_S):
                async with self._client.stream("POST", self._url, content=body) as answer:
                    # Read to its end, so that its connection can be used again, and kept nowhere.
                    async for _ in answer.aiter_raw():
                        pass
        except httpx2.HTTPError as error:
            raise NotTaken(f"no answer: {type(error).__name__} {error}".rstrip()) from error
        except trio.TooSlowError:
            raise NotTaken(f"no whole answer within {POST_S:g} s") from None
        if not answer.is_success:
            raise NotTaken(f"answered {answer.status_code}; expected 2xx")
