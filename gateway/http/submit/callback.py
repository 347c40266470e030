"""Whether a submit may ask for a webhook: its tenant can sign one, and the receiver may be called."""

from typing import Final

import trio

from gateway.logs import get_logger
from gateway.problems import invalid
from gateway.services import Services
from gateway.webhooks.callback import CallbackRefused, check_allowed, is_allowed, parse_callback

log = get_logger(__name__)

LOOK_UP_S: Final = 3.0
"""How long a submit waits to learn where its receiver is."""


async def check_callback(services: Services, tenant: str, url: str, where: str) -> None:
    """Refuse a receiver that will not be called. Each attempt looks again.

    A name that nobody knows anything about at the moment is taken: a resolver that is away is no fault of the job.

    Args:
        services: of the gateway.
        tenant: who asks.
        url: its `callback_url`, well-formed.
        where: its place in the request.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    config = services.config
    if config.limits_of(tenant).webhook_secret_env is None:
        raise invalid(where, "the tenant has no webhook_secret_env, so nothing that is sent could be signed")
    callback, hosts = parse_callback(url), config.webhooks.allowed_hosts
    try:
        check_allowed(callback, hosts)
        if not is_allowed(callback, hosts):
            with trio.move_on_after(LOOK_UP_S):
                await services.resolver.addresses(callback, hosts)
    except CallbackRefused as error:
        raise invalid(where, f"expected a receiver on the public Internet; {error}") from error
    except OSError as error:
        log.warning("receiver of a webhook not looked up", host=callback.host, reason=str(error))
