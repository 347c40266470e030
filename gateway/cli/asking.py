"""How operator commands ask a gateway: where it is, who asks, and what becomes of a refusal."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, NoReturn

import click
import httpx2

from gateway.cli.exit_codes import REFUSED
from gateway.client.calls import Call, read
from gateway.client.errors import GatewayError
from gateway.client.exchange import Exchange, http_arguments
from gateway.client.repeats import Repeats

DEFAULT_ADMIN_URL: Final = "http://127.0.0.1:8081"
SILENCE_S: Final = 60.0
PATIENCE: Final = Repeats(times=3, within_s=15.0)
"""An operator at a terminal is told soon."""

JsonObject = dict[str, Any]


class Operator:
    """The admin side of a gateway. Every call raises GatewayError.

    Args:
        exchange: to the admin bind.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    def ask(self, call: Call) -> JsonObject:
        """The JSON object of an answer; an empty one where there is none."""
        response = self.exchange.send(call)
        return read(response, JsonObject) if response.content else {}


def asks_operator(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the admin side as its first argument, and the options by which it is found.

    A refusal ends the program with its detail. The token is never on the command line, where others see it.
    """

    @click.option(
        "--admin-url",
        envvar="SLUICEGATE_ADMIN_URL",
        default=DEFAULT_ADMIN_URL,
        show_default=True,
        show_envvar=True,
        help="The admin bind. A token is taken from SLUICEGATE_ADMIN_TOKEN.",
    )
    @wraps(command)
    def asking(*arguments: Any, admin_url: str, **options: Any) -> None:
        with operator(checked_url(admin_url), os.environ.get("SLUICEGATE_ADMIN_TOKEN") or None) as admin:
            command(admin, *arguments, **options)

    return asking


@contextmanager
def operator(url: str, token: str | None) -> Iterator[Operator]:
    """The admin side for the length of the block; a refusal ends the program with its detail.

    Args:
        url: of the admin bind.
        token: sent as Bearer; None where the bind asks for none.
    """
    with refusals(), httpx2.Client(**http_arguments(f"{url}/admin", token, None, SILENCE_S)) as http:
        yield Operator(Exchange(http, PATIENCE))


def checked_url(url: str) -> str:
    """A URL without a slash at its end.

    Raises:
        click.UsageError: it is none.
    """
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        parsed = httpx2.URL("")
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise click.UsageError(f"expected a URL such as {DEFAULT_ADMIN_URL}, got {url!r}")
    return url.rstrip("/")


@contextmanager
def refusals() -> Iterator[None]:
    """End the program with the words of a refusal."""
    try:
        yield
    except GatewayError as error:
        refuse(*told(error))


def told(error: GatewayError) -> Iterator[str]:
    """A refusal in lines: what is wrong, and each fault by itself, unless it was told with that."""
    yield f"{error.detail or error.code} ({error.code})"
    for fault in error.errors:
        line = f"{fault.get('pointer', '')}: {fault.get('detail', '')}"
        if error.detail != line and not error.detail.startswith(f"{line}; and "):
            yield f"  {line}"


def told_briefly(error: GatewayError) -> str:
    """A refusal in one line."""
    return "; ".join(line.strip() for line in told(error))


def refuse(*lines: str) -> NoReturn:
    """Say why, and exit with 1."""
    for line in lines:
        click.echo(line, err=True)
    sys.exit(REFUSED)
