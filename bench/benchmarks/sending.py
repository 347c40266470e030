"""The requests that benchmarks send: the same to every side."""

from bench.client import Connection
from bench.figures import InvalidRunError
from bench.work import answer_to, document_of


async def submit(connection: Connection, job_id: str, *, priority: str = "batch") -> str:
    """Submit a job's document; the id that the side gave it.

    Raises:
        InvalidRunError: it was not accepted.
    """
    return await submit_document(connection, job_id, document_of(job_id), priority=priority)


async def submit_document(
    connection: Connection, job_id: str, document: bytes, *, priority: str = "batch"
) -> str:
    """Submit a document of any size; the id that the side gave the job.

    Raises:
        InvalidRunError: it was not accepted.
    """
    headers = {"X-Model": "stub", "X-Request-Id": job_id, "X-Priority": priority}
    headers["Content-Type"] = "application/octet-stream"
    given: str = (await connection.post("/jobs", document, headers)).json(202)["job_id"]
    return given


async def submit_and_wait(connection: Connection, job_id: str) -> None:
    """Submit a job and wait for its result.

    Raises:
        InvalidRunError: it was not accepted, did not complete, or has another result.
    """
    given = await submit(connection, job_id)
    await wait(connection, given, answer_to(job_id, document_of(job_id)))


async def wait(connection: Connection, given: str, expected: dict[str, str]) -> None:
    """Wait until a job has completed with this result.

    Raises:
        InvalidRunError: it did not, or has another result.
    """
    job = (await connection.get(f"/jobs/{given}/wait?timeout=30000")).json(200)
    if job["status"] != "completed" or job["result"] != expected:
        raise InvalidRunError(f"a job is {job['status']} with the result {job['result']!r}")
