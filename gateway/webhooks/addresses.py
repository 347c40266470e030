"""Where a receiver is, and whether it may be called there.

A tenant names the receiver, and the gateway stands inside: whatever it can reach and the tenant cannot (its own admin
side, the cloud's metadata, the network behind it) must not be reachable through a webhook. So the addresses of a
host are looked up here and all of them judged, and whoever connects takes one of these and looks nothing up again:
a name that means something else a moment later changes nothing.

The operator's `webhooks.allowed_hosts` are believed, wherever they are.
"""

import socket
from collections.abc import Callable, Collection, Sequence
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

import trio

from gateway.webhooks.callback import Callback, CallbackRefused, check_allowed, is_allowed

_REFUSED_V4: Final = tuple(
    map(
        IPv4Network,
        (
            *("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16"),  # this host, this link
            *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),  # private
            "100.64.0.0/10",  # behind a provider's address translation
            *("192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15"),  # protocols, 6to4 relays, benchmarks
            *("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),  # documentation
            *("224.0.0.0/4", "240.0.0.0/4"),  # multicast, reserved, broadcast
        ),
    )
)
_GLOBAL_V6: Final = IPv6Network("2000::/3")
"""All that is given out. Loopback, unspecified, link-local, unique local, multicast, and IPv4 mapped, compatible or
translated lie outside."""
_REFUSED_V6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocols; Teredo, which carries IPv4
            "2002::/16",  # 6to4, which carries IPv4
            *("2001:db8::/32", "3fff::/20"),  # documentation
        ),
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
"""How a network without IPv4 sees IPv4: judged as the address that the last 32 bits are."""
LookUp = Callable[[str, int], Sequence[str]]
_HAS_NONE: Final = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def is_public(address: str) -> bool:
    """Whether an address is one of the public Internet (with the IANA registries of special addresses)."""
    found = ip_address(address)
    if isinstance(found, IPv6Address) and found in _NAT64:
        found = IPv4Address(int(found) & 0xFFFFFFFF)
    if isinstance(found, IPv4Address):
        return not any(found in network for network in _REFUSED_V4)
    return found in _GLOBAL_V6 and not any(found in network for network in _REFUSED_V6)


def system_addresses(host: str, port: int) -> Sequence[str]:
    """What the system knows about a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def is_address(host: str) -> bool:
    """Whether a host is an address, and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class Resolver:
    """Looks receivers up, in threads of its own: names are the tenants', so a look-up may take as long as they like.

    Args:
        threads: look-ups at a time; one that was given up counts until it ends.
        look_up: finds the addresses of a host; blocks, and raises OSError.
    """

    def __init__(self, threads: int, look_up: LookUp = system_addresses) -> None:
        self._limiter = trio.CapacityLimiter(threads)
        self._look_up = look_up

    def __repr__(self) -> str:
        return f"<Resolver {self._limiter.borrowed_tokens} of {self._limiter.total_tokens:g} threads in use>"

    async def addresses(self, callback: Callback, allowed_hosts: Collection[str]) -> Sequence[str]:
        """The addresses at which a receiver may be called, in the order to try them. The caller bounds the time.

        Args:
            callback: the receiver.
            allowed_hosts: `webhooks.allowed_hosts`.

        Raises:
            CallbackRefused: its URL is not allowed (`check_allowed`), it has no address, or one that is not public.
                Which one is not told: that is not for whoever asks.
            OSError: nobody knows at the moment.
        """
        check_allowed(callback, allowed_hosts)
        addresses = await self._found(callback.host, callback.port)
        if not is_allowed(callback, allowed_hosts) and not all(map(is_public, addresses)):
            raise CallbackRefused(
                "its host is not at public addresses alone, and not in webhooks.allowed_hosts"
            )
        return addresses

    async def _found(self, host: str, port: int) -> Sequence[str]:
        if is_address(host):
            await trio.lowlevel.checkpoint()
            return [host]
        look_up = partial(self._look_up, host, port)
        try:
            return await trio.to_thread.run_sync(look_up, abandon_on_cancel=True, limiter=self._limiter)
        except socket.gaierror as error:
            if error.errno in _HAS_NONE:
                raise CallbackRefused("its host has no address") from error
            raise
        except UnicodeError as error:  # what the library's own encoding of names does not take
            raise CallbackRefused("its host is no name") from error
