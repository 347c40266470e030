"""The table of routes, and the short way from a method and a path to its row.

Where one template has a parameter and another a word (`/jobs/{job_id}` and `/jobs/wait`), the word is no value of the
parameter: a path has one meaning, whatever the method.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from gateway.http.message import Reply
from gateway.problems import ApiError

Handler = Callable[..., Awaitable[Reply]]
"""`async def handler(services: Services, request: Request, **path_params: str) -> Reply`."""


Wording = Callable[[ApiError, str], tuple[bytes, str]]
"""How an error is told: its body and content type, from the error and the request's id."""


def as_problem(error: ApiError, trace_id: str) -> tuple[bytes, str]:
    """A problem document (RFC 9457)."""
    return msgspec.json.encode(error.document(trace_id)), "application/problem+json"


class Route(Struct, frozen=True):
    """One row of a route table."""

    method: str
    template: str
    """`/jobs/{id}/result`; each `{name}` is one path segment and a keyword argument of the handler."""
    handler: Handler
    name: str
    """Unique in its table."""
    wording: Wording = as_problem
    """How its errors are told."""


def words_beside(routes: Sequence[Route], template: str) -> dict[str, list[str]]:
    """What the parameters of a template cannot be: by parameter, the words that other templates have in its place."""
    words: dict[str, list[str]] = {}
    parts = template.split("/")
    for place, part in enumerate(parts):
        if part.startswith("{"):
            others = (route.template.split("/") for route in routes)
            beside = {
                other[place]
                for other in others
                if len(other) > place and other[:place] == parts[:place] and not other[place].startswith("{")
            }
            words[part[1:-1]] = sorted(beside)
    return words


class Router:
    """Finds the route of a method and a path that are exactly a route's.

    Args:
        routes: the table.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self._plain = {(route.method, route.template): route for route in routes if "{" not in route.template}
        self._patterns = [
            (route, _pattern(route.template, words_beside(routes, route.template)))
            for route in routes
            if "{" in route.template
        ]
        self._wordings = {_first_segment(route.template): route.wording for route in routes}

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        """The route with its path parameters; None when no row fits as it stands."""
        plain = self._plain.get((method, path))
        if plain is not None:
            return plain, {}
        for route, pattern in self._patterns:
            if route.method == method and (match := pattern.fullmatch(path)):
                return route, match.groupdict()
        return None

    def wording(self, path: str) -> Wording:
        """How errors are told at a path that no route serves: as by the routes with the same first segment."""
        return self._wordings.get(_first_segment(path), as_problem)


def _first_segment(path: str) -> str:
    return path.strip("/").partition("/")[0]


def _pattern(template: str, words: Mapping[str, Sequence[str]]) -> re.Pattern[str]:
    def segment(found: re.Match[str]) -> str:
        name = found[1]
        none_of = "".join(rf"(?!{re.escape(word)}(?:/|$))" for word in words[name])
        return rf"(?P<{name}>{none_of}[^/]+)"

    return re.compile(re.sub(r"\{(\w+)\}", segment, template))
