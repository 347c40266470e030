"""The ceiling of P1: a raw ASGI application that says hello, on the stock server of our stack.

python -m bench.hello PORT
"""

import sys
from functools import partial
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

BODY = b"hello"
HEADERS = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(BODY))]


async def hello(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer every request."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


def main(port: int) -> None:
    """Serve until the process is ended."""
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.accesslog = None
    config.keep_alive_max_requests = 10**9
    print("listening", flush=True)
    trio.run(partial(serve, hello, config, mode="asgi"))


if __name__ == "__main__":
    main(int(sys.argv[1]))
