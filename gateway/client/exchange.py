"""One call over a connection, with its repetitions: blocking, and on Trio."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any, Final

import httpx2
import trio

from gateway.client.calls import Call
from gateway.client.errors import UNREACHABLE, GatewayError, refusal_of
from gateway.client.repeats import Repeats, Tries, failure_of

CONNECT_S: Final = 10.0


class _Sending:
    """The tries of one call, and what becomes of each answer."""

    def __init__(self, call: Call, bounds: Repeats, now: float) -> None:
        self._call = call
        is_repeatable = call.body is None or call.body.repeatable
        self._tries = Tries(bounds if is_repeatable else Repeats(times=0), call.harmless, began_at=now)

    def done(self, answer: httpx2.Response | httpx2.TransportError) -> bool:
        """Whether this answer is what was asked for."""
        if isinstance(answer, httpx2.TransportError):
            return False
        is_gone = answer.status_code == 404 and self._call.forgets and self._tries.repeated > 0
        return answer.is_success or is_gone

    def pause(self, answer: httpx2.Response | httpx2.TransportError, now: float) -> float:
        """Seconds before the next try.

        Raises:
            GatewayError: there is none; what the answer means.
        """
        failure = failure_of(answer)
        pause_s = None if failure is None else self._tries.pause(failure, now)
        if pause_s is not None:
            return pause_s
        if isinstance(answer, httpx2.TransportError):
            raise unreachable(answer) from answer
        raise refusal_of(answer.status_code, answer.content)


def unreachable(error: httpx2.TransportError) -> GatewayError:
    """No answer came."""
    said = str(error) or type(error).__name__
    return GatewayError(UNREACHABLE, f"no answer from {error.request.url}: {said}", retryable=True)


class Exchange:
    """Sends calls and blocks until they are answered.

    Args:
        http: the connections.
        repeats: bounds of repeating.
    """

    def __init__(self, http: httpx2.Client, repeats: Repeats) -> None:
        self.http = http
        self.repeats = repeats

    def send(self, call: Call) -> httpx2.Response:
        """The answer, of a status below 300.

        Raises:
            GatewayError: refused, or not reached.
        """
        sending = _Sending(call, self.repeats, time.monotonic())
        while True:
            try:
                answer: httpx2.Response | httpx2.TransportError = self.http.send(self._request(call))
            except httpx2.TransportError as error:
                answer = error
            if sending.done(answer):
                assert isinstance(answer, httpx2.Response), "only an answer is done"  # noqa: S101  # for the type checker
                return answer
            time.sleep(sending.pause(answer, time.monotonic()))

    @contextmanager
    def streaming(self, call: Call) -> Iterator[httpx2.Response]:
        """The answer to one try, its body not read yet.

        Raises:
            GatewayError: refused.
            httpx2.TransportError: not reached.
        """
        response = self.http.send(self._request(call), stream=True)
        try:
            if not response.is_success and failure_of(response) is None:
                raise refusal_of(response.status_code, response.read())
            yield response
        finally:
            response.close()

    def _request(self, call: Call) -> httpx2.Request:
        content = None if call.body is None else call.body.blocking()
        return self.http.build_request(content=content, **request_arguments(call, self.http))


class AsyncExchange:
    """Sends calls on Trio.

    Args:
        http: the connections.
        repeats: bounds of repeating.
    """

    def __init__(self, http: httpx2.AsyncClient, repeats: Repeats) -> None:
        self.http = http
        self.repeats = repeats

    async def send(self, call: Call) -> httpx2.Response:
        """As `Exchange.send`."""
        sending = _Sending(call, self.repeats, trio.current_time())
        while True:
            try:
                answer: httpx2.Response | httpx2.TransportError = await self.http.send(self._request(call))
            except httpx2.TransportError as error:
                answer = error
            if sending.done(answer):
                assert isinstance(answer, httpx2.Response), "only an answer is done"  # noqa: S101  # for the type checker
                return answer
            await trio.sleep(sending.pause(answer, trio.current_time()))

    async def open(self, call: Call) -> httpx2.Response:
        """The answer to one try, its body not read yet; whoever asked closes it.

        Raises:
            GatewayError: refused.
            httpx2.TransportError: not reached.
        """
        response = await self.http.send(self._request(call), stream=True)
        if not response.is_success and failure_of(response) is None:
            raise refusal_of(response.status_code, await response.aread())
        return response

    def _request(self, call: Call) -> httpx2.Request:
        content = None if call.body is None else call.body.on_trio()
        return self.http.build_request(content=content, **request_arguments(call, self.http))


def request_arguments(call: Call, http: httpx2.Client | httpx2.AsyncClient) -> dict[str, Any]:
    """A call in the words of httpx, without its body."""
    timeout = http.timeout
    if call.silence_s is not None:
        timeout = httpx2.Timeout(**(timeout.as_dict() | {"read": call.silence_s}))
    return {
        "method": call.method,
        "url": call.path,
        "params": call.params or None,
        "headers": call.headers,
        "timeout": timeout,
    }


def http_arguments(url: str, key: str | None, tenant: str | None, timeout_s: float) -> dict[str, Any]:
    """How connections to a gateway are made.

    Args:
        url: of the gateway.
        key: sent as Bearer.
        tenant: sent as X-Tenant-Id.
        timeout_s: longest silence.
    """
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    if tenant is not None:
        headers["X-Tenant-Id"] = tenant
    return {
        "base_url": url.rstrip("/") + "/",
        "headers": headers,
        "timeout": httpx2.Timeout(timeout_s, connect=CONNECT_S),
        "trust_env": not _is_this_machine(httpx2.URL(url).host),
    }


def _is_this_machine(host: str) -> bool:
    """Whether no proxy can be meant."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
