"""A client of a gateway, for programs: `Client` blocks its thread, `AsyncClient` runs on Trio.

    with Client("http://127.0.0.1:8080", key="...") as client:
        job = client.submit(Path("scan.png"), model="ocr")
        job = client.wait(job.job_id)
        print(client.result(job.job_id).content)

What is refused raises `GatewayError`, and so does a gateway that cannot be reached. What may be repeated without harm is
repeated, within the bounds of `Repeats`.

    model        what answers hold
    errors       the one exception
    repeats      what is tried again, and when
    documents    what can be submitted
    calls        each operation as a request, and how its answer is read
    events       server-sent events
    exchange     one call over a connection, with its repetitions; blocking and on Trio
    blocking     `Client`
    on_trio      `AsyncClient`
"""

from gateway.client.blocking import Client
from gateway.client.calls import Options
from gateway.client.documents import Document
from gateway.client.errors import GatewayError
from gateway.client.model import Attempt, Child, Counts, Event, Job, Page, Problem, Result
from gateway.client.on_trio import AsyncClient
from gateway.client.repeats import Repeats

__all__ = [
    "AsyncClient",
    "Attempt",
    "Child",
    "Client",
    "Counts",
    "Document",
    "Event",
    "GatewayError",
    "Job",
    "Options",
    "Page",
    "Problem",
    "Repeats",
    "Result",
]
