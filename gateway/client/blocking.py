"""The client that blocks its thread."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Self, Unpack

import httpx2

from gateway.client import calls
from gateway.client.calls import GroupTerms, Options, read_job, read_page, read_result
from gateway.client.documents import Document
from gateway.client.events import Following, is_last, is_over
from gateway.client.exchange import Exchange, http_arguments
from gateway.client.model import Event, Job, Page, Result
from gateway.client.repeats import Failure, Repeats, failure_of


class _Acting:
    """Acting on jobs."""

    _exchange: Exchange

    def cancel(self, job_id: str) -> Job:
        """End the job as cancelled; one that has ended is left as it is."""
        return read_job(self._exchange.send(calls.steer(job_id, "cancel")))

    def pause(self, job_id: str) -> Job:
        """Hold a queued job."""
        return read_job(self._exchange.send(calls.steer(job_id, "pause")))

    def interrupt(self, job_id: str) -> Job:
        """Hold a queued job, as interrupted."""
        return read_job(self._exchange.send(calls.steer(job_id, "interrupt")))

    def resume(self, job_id: str) -> Job:
        """Let a held job wait again."""
        return read_job(self._exchange.send(calls.steer(job_id, "resume")))

    def retry(self, job_id: str) -> Job:
        """A new job in the place of one that has ended. Repeated only where nothing can have reached the gateway."""
        return read_job(self._exchange.send(calls.retry(job_id)))

    def delete(self, job_id: str) -> None:
        """Forget the job; one that runs is cancelled."""
        self._exchange.send(calls.delete(job_id))


class Client(_Acting):
    """A gateway, for one thread at a time or several. Close it, or use it as a context manager.

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
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        arguments = http_arguments(url, key, tenant, timeout_s)
        self._exchange = Exchange(httpx2.Client(transport=transport, **arguments), repeats or Repeats())
        self._url = url

    def __repr__(self) -> str:
        return f"<Client of {self._url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._exchange.http.close()

    def submit(
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
        return read_job(self._exchange.send(call))

    def submit_input(self, value: object, *, key: str | None = None, **options: Unpack[Options]) -> Job:
        """Submit JSON that the upstream receives instead of a document."""
        return read_job(self._exchange.send(calls.submit_input(value, options, key=key)))

    def submit_group(
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
        return read_job(self._exchange.send(calls.submit_group(children, terms, options, key=key)))

    def get(self, job_id: str) -> Job:
        """The job as it is."""
        return read_job(self._exchange.send(calls.get(job_id)))

    def wait(self, job_id: str, *, timeout_s: float = math.inf) -> Job:
        """The job once it is done, or as it is when the time is over: look at `done`."""
        deadline = time.monotonic() + timeout_s
        while True:
            began = time.monotonic()
            call = calls.wait(job_id, deadline - began)
            job = read_job(self._exchange.send(call))
            now = time.monotonic()
            if job.done or now >= deadline:
                return job
            time.sleep(calls.rest_s(call, now - began, deadline - now))

    def events(self, job_id: str | None = None, *, after: str | None = None) -> Iterator[Event]:
        """What happens to a job, up to its end; None: to all jobs of the tenant, without end.

        Connections that break are made again; nothing is missed.

        Args:
            job_id: the job.
            after: go on behind the event of this id.
        """
        return follow(self._exchange, job_id, after)

    def result(self, job_id: str) -> Result:
        """What the upstream answered."""
        return read_result(self._exchange.send(calls.result(job_id)))

    def page(self, **filters: object) -> Page:
        """One page of the tenant's jobs, newest first.

        Args:
            filters: `status` (one or a list), `operation`, `model`, `group`, `since`, `limit`, `after`.
        """
        return read_page(self._exchange.send(calls.listing(filters)))

    def list(self, **filters: object) -> Iterator[Job]:
        """The tenant's jobs, newest first, over all pages. Filters as of `page`."""
        page = self.page(**filters)
        yield from page.data
        while page.next is not None:
            page = self.page(**{**filters, "after": page.next})
            yield from page.data


def follow(exchange: Exchange, job_id: str | None, after: str | None) -> Iterator[Event]:
    """The events of a job up to its end, or of all jobs, over as many connections as it takes."""
    following = Following(after, exchange.repeats, time.monotonic())
    while True:
        try:
            with exchange.streaming(calls.events(job_id, following.cursor)) as response:
                failure = failure_of(response)
                if is_over(response):
                    return
                for sent in () if failure else httpx2.EventSource(response):
                    event = following.take(sent, time.monotonic())
                    if event is not None:
                        yield event
                        if job_id is not None and is_last(event, job_id):
                            return
        except httpx2.TransportError as error:
            failure = failure_of(error)
        time.sleep(following.broken(failure or Failure(), time.monotonic()))
