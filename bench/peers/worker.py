"""The peer's worker: takes queued documents and posts each to the upstream.

python -m bench.peers.worker BUILD REDIS_PORT UPSTREAM SLOTS
"""

import asyncio
import sys
from typing import Any

import aiohttp
import httpx
import uvloop
from arq.connections import RedisSettings
from arq.worker import Worker, func

POLL_S = 0.01
"""How often the worker asks for new jobs."""


async def call_with_httpx(ctx: dict[str, Any], document: bytes) -> bytes:
    """The job, with httpx."""
    answer = await ctx["client"].post(ctx["url"], content=document, headers={"X-Request-Id": ctx["job_id"]})
    answer.raise_for_status()
    content: bytes = answer.content
    return content


async def call_with_aiohttp(ctx: dict[str, Any], document: bytes) -> bytes:
    """The job, with aiohttp."""
    headers = {"X-Request-Id": ctx["job_id"]}
    async with ctx["client"].post(ctx["url"], data=document, headers=headers) as answer:
        answer.raise_for_status()
        content: bytes = await answer.read()
        return content


def httpx_client(slots: int) -> httpx.AsyncClient:
    """A client that keeps a connection for each slot."""
    limits = httpx.Limits(max_connections=slots, max_keepalive_connections=slots)
    return httpx.AsyncClient(limits=limits, timeout=60, trust_env=False)


def aiohttp_client(slots: int) -> aiohttp.ClientSession:
    """A client that keeps a connection for each slot."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=slots))


BUILDS = {
    "httpx": (call_with_httpx, httpx_client, asyncio.new_event_loop),
    "aiohttp": (call_with_aiohttp, aiohttp_client, uvloop.new_event_loop),
}


async def main(build: str, redis_port: int, upstream: str, slots: int) -> None:
    """Work until the process is ended."""
    call, make_client, _ = BUILDS[build]

    async def say_ready(_ctx: dict[str, Any]) -> None:
        print("worker ready", flush=True)

    worker = Worker(
        functions=[func(call, name="ocr", keep_result=3600)],
        redis_settings=RedisSettings(port=redis_port),
        on_startup=say_ready,
        handle_signals=False,
        max_jobs=slots,
        max_tries=1,
        poll_delay=POLL_S,
        ctx={"client": make_client(slots), "url": f"{upstream}/ocr"},
    )
    await worker.async_run()


if __name__ == "__main__":
    chosen, redis, url, number = sys.argv[1:]
    with asyncio.Runner(loop_factory=BUILDS[chosen][2]) as runner:
        runner.run(main(chosen, int(redis), url, int(number)))
