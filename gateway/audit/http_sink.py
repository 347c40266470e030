"""The sink that posts batches of lines to a receiver.

    POST <url>   Content-Type: application/x-ndjson   Authorization: Bearer <token>
    one event a line; a batch is bounded by number and by bytes

- 2xx and a whole answer: the receiver has the batch. Anything else, a redirect too, and no answer within the bounds: it is offered again,
  from its first line. So a receiver may get a line twice; `event_id` tells.
- A line longer than a batch may be goes alone.
- Redirects are not followed and proxies of the environment not used: events and token go to the named host only.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import httpx2
import trio

from gateway.audit.batches import NotTaken, hand_over
from gateway.audit.bodies import Line
from gateway.audit.sinks import WriteOnly, key_of

CONNECT_S: Final = 5.0
SILENCE_S: Final = 10.0
"""Longest wait for the next byte to be taken or to come."""
POST_S: Final = 30.0
"""One batch, from connecting to the end of the answer."""


class HttpSink(WriteOnly):
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
        return key_of(self.name, self._url)

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

    async def write(self, lines: deque[Line]) -> None:
        """Post in batches.

        Raises:
            NotTaken: the receiver refused, or gave no answer in time.
        """
        await hand_over(lines, self._post)

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()

    async def _post(self, batch: Sequence[Line]) -> None:
        if self._client is None:
            raise RuntimeError("the sink is not open")
        body = b"".join(line.data + b"\n" for line in batch)
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
