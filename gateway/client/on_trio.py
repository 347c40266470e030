"""The client that runs on Trio."""

import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Literal, Self, Unpack

import httpx2
import trio

from gateway.client import calls
from gateway.client.calls import GroupTerms, Options, read_job, read_page, read_result
from gateway.client.documents import Document
from gateway.client.events import Following, is_last, is_over
from gateway.client.exchange import AsyncExchange, http_arguments
from gateway.client.model import Event, Job, Page, Result
from gateway.client.repeats import Failure, Repeats, failure_of

CLOSING_S: Final = 1.0
"""Bound of closing connections."""


class _Acting:
    """Acting on jobs."""

    _exchange: AsyncExchange

    async def cancel(self, job_id: str) -> Job:
        """End the job as cancelled; one that has ended is left as it is."""
        return read_job(await self._exchange.send(calls.steer(job_id, "cancel")))

    async def pause(self, job_id: str) -> Job:
        """Hold a queued job."""
        return read_job(await self._exchange.send(calls.steer(job_id, "pause")))

    async def interrupt(self, job_id: str) -> Job:
        """Hold a queued job, as interrupted."""
        return read_job(await self._exchange.send(calls.steer(job_id, "interrupt")))

    async def resume(self, job_id: str) -> Job:
        """Let a held job wait again."""
        return read_job(await self._exchange.send(calls.steer(job_id, "resume")))

    async def retry(self, job_id: str) -> Job:
        """A new job in the place of one that has ended. Repeated only where nothing can have reached the gateway."""
        return read_job(await self._exchange.send(calls.retry(job_id)))

    async def delete(self, job_id: str) -> None:
        """Forget the job; one that runs is cancelled."""
        await self._exchange.send(calls.delete(job_id))


class AsyncClient(_Acting):
    """A gateway, for any number of tasks. Close it, or use it as a context manager.

    Every method raises `GatewayError` when the gateway refuses, and after its repetitions when it cannot be reached.

    Args:
        url: of the public bind; of the admin bind with `/admin` behind it.
        key: the client's key, or the admin token.
        tenant: whose jobs, where no key says it.
        timeout_s: longest silence of the gateway within one answer.
        repeats: bounds of repeating.
        transport: how connections are made; None: as httpx does.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        tenant: str | None = None,
        timeout_s: float = 60.0,
        repeats: Repeats | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        arguments = http_arguments(url, key, tenant, timeout_s)
        self._exchange = AsyncExchange(
            httpx2.AsyncClient(transport=transport, **arguments), repeats or Repeats()
        )
        self._url = url

    def __repr__(self) -> str:
        return f"<AsyncClient of {self._url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        with trio.move_on_after(CLOSING_S, shield=True):
            await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._exchange.http.aclose()

    async def submit(
        self,
        document: Document,
        *,
        key: str | None = None,
        content_type: str | None = None,
        form: bool | None = None,
        **options: Unpack[Options],
    ) -> Job:
        """Submit a document; the job as it was created.

        Args:
            document: its bytes, its path, an open file, or its bytes in pieces.
            key: idempotency key: the same key is the same job. None: a new one, which makes repetitions safe.
            content_type: of the document; None: by the name of its file.
            form: whether it goes as a file of a form; None: as it is, where its type allows that.
            options: see `Options`.
        """
        call = calls.submit(document, options, key=key, content_type=content_type, form=form)
        return read_job(await self._exchange.send(call))

    async def submit_input(self, value: object, *, key: str | None = None, **options: Unpack[Options]) -> Job:
        """Submit JSON that the upstream receives instead of a document."""
        return read_job(await self._exchange.send(calls.submit_input(value, options, key=key)))

    async def submit_group(
        self,
        children: Iterable[Document | Mapping[str, Any]],
        *,
        max_parallel: int,
        policy: Literal["collect", "fail_fast"] | None = None,
        key: str | None = None,
        **options: Unpack[Options],
    ) -> Job:
        """Submit many documents as one group; the group as it was created. `wait` waits for all of them.

        Args:
            children: documents, which go as the files of a form; or mappings, as `fanout.children` takes them.
            max_parallel: how many may run at a time.
            policy: what the first that does not complete means for the others; None: nothing.
            key: idempotency key, as of `submit`.
            options: see `Options`; of the whole group.
        """
        terms = GroupTerms(max_parallel, policy)
        return read_job(await self._exchange.send(calls.submit_group(children, terms, options, key=key)))

    async def get(self, job_id: str) -> Job:
        """The job as it is."""
        return read_job(await self._exchange.send(calls.get(job_id)))

    async def wait(self, job_id: str, *, timeout_s: float = math.inf) -> Job:
        """The job once it is done, or as it is when the time is over: look at `done`."""
        deadline = trio.current_time() + timeout_s
        while True:
            began = trio.current_time()
            call = calls.wait(job_id, deadline - began)
            job = read_job(await self._exchange.send(call))
            now = trio.current_time()
            if job.done or now >= deadline:
                return job
            await trio.sleep(calls.rest_s(call, now - began, deadline - now))

    def events(self, job_id: str | None = None, *, after: str | None = None) -> "EventStream":
        """What happens to a job, up to its end; None: to all jobs of the tenant, without end.

            async with client.events(job_id) as events:
                async for event in events: ...

        Connections that break are made again; nothing is missed.

        Args:
            job_id: the job.
            after: go on behind the event of this id.
        """
        return EventStream(self._exchange, job_id, after)

    async def result(self, job_id: str) -> Result:
        """What the upstream answered."""
        return read_result(await self._exchange.send(calls.result(job_id)))

    async def page(self, **filters: object) -> Page:
        """One page of the tenant's jobs, newest first.

        Args:
            filters: `status` (one or a list), `operation`, `model`, `group`, `since`, `limit`, `after`.
        """
        return read_page(await self._exchange.send(calls.listing(filters)))

    async def list(  # noqa: ASYNC900  holds nothing between two jobs
        self, **filters: object
    ) -> AsyncGenerator[Job, None]:
        """The tenant's jobs, newest first, over all pages. Filters as of `page`."""
        page = await self.page(**filters)
        for job in page.data:
            yield job
        while page.next is not None:
            page = await self.page(**{**filters, "after": page.next})
            for job in page.data:
                yield job


class EventStream:
    """Events over as many connections as it takes. Opened as a context manager, read by one task.

    Args:
        exchange: makes the connections.
        job_id: the job; None: all of the tenant.
        after: go on behind the event of this id.
    """

    def __init__(self, exchange: AsyncExchange, job_id: str | None, after: str | None) -> None:
        self._exchange = exchange
        self._job_id = job_id
        self._following = Following(after, exchange.repeats, trio.current_time())
        self._connection: httpx2.Response | None = None
        self._sent: AsyncIterator[httpx2.ServerSentEvent] | None = None
        self._ended = False

    def __repr__(self) -> str:
        return f"<EventStream of {self._job_id or 'all jobs'}: {self._following}>"

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        with trio.move_on_after(CLOSING_S, shield=True):
            await self._disconnect()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._ended:
            failure: Failure | None = None
            try:
                if self._sent is None:
                    failure = await self._connect()
                if self._sent is not None and (event := await self._next(self._sent)) is not None:
                    self._ended = self._job_id is not None and is_last(event, self._job_id)
                    return event
            except httpx2.TransportError as error:
                failure = failure_of(error)
            await self._disconnect()
            if not self._ended:
                await trio.sleep(self._following.broken(failure or Failure(), trio.current_time()))
        raise StopAsyncIteration

    async def _connect(self) -> Failure | None:
        """Make a connection; how it failed, when that may pass."""
        call = calls.events(self._job_id, self._following.cursor)
        self._connection = await self._exchange.open(call)
        failure = failure_of(self._connection)
        self._ended = is_over(self._connection)
        if failure is None and not self._ended:
            self._sent = aiter(httpx2.EventSource(self._connection))
        return failure

    async def _next(self, sent: AsyncIterator[httpx2.ServerSentEvent]) -> Event | None:
        """The next event; None: this connection has no more."""
        async for each in sent:
            event = self._following.take(each, trio.current_time())
            if event is not None:
                return event
        return None

    async def _disconnect(self) -> None:
        sent, self._sent = self._sent, None
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with trio.move_on_after(CLOSING_S, shield=True):
            if sent is not None:
                await _unwind(sent)
            await connection.aclose()


async def _unwind(sent: AsyncIterator[httpx2.ServerSentEvent]) -> None:
    """End what reads the connection: generators within generators, which end only where they wait."""
    with trio.CancelScope() as scope, suppress(httpx2.TransportError):
        scope.cancel("the stream of events is closed")
        async for _ in sent:
            pass
