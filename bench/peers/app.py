"""The peer's web app: takes documents, queues them with arq, waits for their results.

python -m bench.peers.app BUILD REDIS_PORT PORT
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from arq import create_pool
from arq.connections import RedisSettings
from arq.jobs import Job
from fastapi import FastAPI, Request

POLL_S = 0.01
"""How often a waiting request asks Redis."""

BUILDS = {"httpx": {"loop": "asyncio", "http": "h11"}, "aiohttp": {"loop": "uvloop", "http": "httptools"}}
"""What `pip install uvicorn` and `pip install uvicorn[standard]` run on."""


def make_app(redis_port: int) -> FastAPI:
    """The app."""

    @asynccontextmanager
    async def connected(app: FastAPI) -> AsyncIterator[None]:
        app.state.pool = await create_pool(RedisSettings(port=redis_port))
        yield
        await app.state.pool.aclose()

    app = FastAPI(lifespan=connected)

    @app.post("/jobs", status_code=202)
    async def submit(request: Request) -> dict[str, str]:
        document = await request.body()
        job = await app.state.pool.enqueue_job("ocr", document, _job_id=request.headers["x-request-id"])
        return {"job_id": job.job_id}

    @app.get("/jobs/{job_id}/wait")
    async def wait(job_id: str) -> dict[str, object]:
        result = await Job(job_id, app.state.pool).result(timeout=30, poll_delay=POLL_S)
        return {"job_id": job_id, "status": "completed", "result": json.loads(result)}

    return app


if __name__ == "__main__":
    build, redis_port, port = sys.argv[1:]
    uvicorn.run(
        make_app(int(redis_port)), host="127.0.0.1", port=int(port), access_log=False, **BUILDS[build]
    )
