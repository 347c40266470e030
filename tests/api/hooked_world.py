"""A world of the API in which a tenant has a webhook secret, and names are looked up without threads."""

from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import trio
from api_world import CONFIG, JSON, RAW, open_world
from test_api_form import FILE, TYPE, field, form, part

from gateway.webhooks.addresses import Resolver

HOOKED = "webhooks: {allowed_hosts: [hooks.internal, '127.0.0.1:9000']}\n" + CONFIG.replace(
    "tenants:\n", "tenants:\n  acme: {webhook_secret_env: ACME_HOOKS}\n"
)
URL = "https://client.example/hook?token=t0ken"
PLACES = {
    "header": "header:x-callback-url",
    "query": "query:callback_url",
    "form": "/callback_url",
    "json": "/callback_url",
}


class Names(Resolver):
    """A resolver that knows these names, without threads."""

    def __init__(self, **known: Sequence[str] | Exception) -> None:
        super().__init__(1)
        self.known: dict[str, Sequence[str] | Exception] = {
            "client.example": ["93.184.215.14"],
            "other.example": ["93.184.215.15"],
            **known,
        }
        self.asked: list[str] = []

    async def _found(self, host: str, port: int) -> Sequence[str]:
        await trio.lowlevel.checkpoint()
        self.asked.append(host)
        found = self.known.get(host, [host])
        if isinstance(found, Exception):
            raise found
        return found


@asynccontextmanager
async def open_hooked():
    """A world in which acme may ask for webhooks."""
    async with open_world(config=HOOKED) as world:
        world.services = replace(world.services, resolver=Names())
        yield world


def asking(place: str, url: str, **more) -> dict:
    """Arguments of a submit that asks for a webhook at this place."""
    if place == "header":
        return {"body": b"%PDF", "headers": RAW | {"x-callback-url": url}, **more}
    if place == "query":
        return {"body": b"%PDF", "headers": RAW, "query": [("callback_url", url)], **more}
    if place == "form":
        body = form(field("callback_url", url.encode()), field("model", b"paddleocr"), part(FILE, b"%PDF"))
        return {"body": body, "headers": {"content-type": TYPE}, **more}
    body = msgspec.json.encode({"model": "paddleocr", "input": {}, "callback_url": url})
    return {"body": body, "headers": JSON, **more}
