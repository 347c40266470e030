"""The two routes of the description: the document, and the page that shows it. Both are made once, at start.

The page is one answer: style and script stand in it, each allowed by its hash alone. It loads the document from its own
server and nothing else from anywhere.
"""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

import msgspec
import trio

from gateway.http.message import Reply, Request
from gateway.http.openapi.document import openapi_document
from gateway.http.routing import Route
from gateway.services import Services

OPEN_ROUTES: Final = frozenset({"get_openapi", "get_docs"})
"""Names of the routes that say nothing about a tenant, and ask for no key."""


class Description:
    """Describes a route table, itself included.

    Args:
        routes: of the bind.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = (
            *routes,
            Route("GET", "/openapi.json", self._get_openapi, "get_openapi"),
            Route("GET", "/docs", self._get_docs, "get_docs"),
        )
        """The routes, and the two that describe them all."""
        self._openapi = Reply(
            body=msgspec.json.encode(openapi_document(self.routes)), content_type="application/json"
        )
        self._docs = _page()

    async def _get_openapi(self, _services: Services, _request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return self._openapi

    async def _get_docs(self, _services: Services, _request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return self._docs


def _page() -> Reply:
    """The page with its parts put in."""
    folder = files("gateway.http.openapi")
    html, style, script = (
        (folder / name).read_text("utf-8") for name in ("page.html", "page.css", "page.js")
    )
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Reply(
        headers={
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        },
        body=html.replace("{{style}}", style).replace("{{script}}", script).encode(),
        content_type="text/html; charset=utf-8",
    )


def _hash(content: str) -> str:
    """A source expression of Content Security Policy: what stands between the tags, to the byte."""
    return f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
