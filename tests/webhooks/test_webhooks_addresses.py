"""Which addresses a webhook may go to, and how names are looked up."""

import socket
import threading
from ipaddress import IPv4Address, IPv6Address

import pytest
import trio

from gateway.webhooks.addresses import Resolver, is_public, system_addresses
from gateway.webhooks.callback import CallbackRefused, parse_callback

PUBLIC = [
    *(
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
    ),
    *("169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0"),
    *("198.17.255.255", "198.20.0.0", "223.255.255.255", "192.0.1.0"),
    *("2606:4700::1111", "2001:4860:4860::8888", "2a00::1", "3ffe::1"),
    "64:ff9b::101:101",
]
NOT_PUBLIC = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255"),
    *("127.0.0.1", "127.255.255.255", "169.254.169.254", "172.16.0.0", "172.31.255.255", "192.168.0.1"),
    *("192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.19.255.255"),
    *("198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *(
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "febf::1",
        "fec0::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "ff0e::1",
    ),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::8.8.8.8"),
    *("64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "::ffff:0:8.8.8.8"),
    *("2002:7f00:1::", "2002:808:808::1", "2001::1", "2001:0:4136:e378::1", "2001:10::1", "2001:20::1"),
    *("2001:db8::1", "3fff::1", "100::1", "5f00::1", "1fff::1", "4000::1"),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address):
    """Addresses of the public Internet may be called, those next to a refused range too."""
    assert is_public(address)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_addresses_that_are_not_public(address):
    """Private, loopback, link-local, carrier, multicast, reserved and unspecified addresses may not, in no disguise."""
    assert not is_public(address)


def test_what_the_library_calls_special_is_refused():
    """Whatever of every 256th network Python knows as special is not public here either."""
    for first in range(256):
        for second in range(256):
            address = IPv4Address(bytes([first, second, 0, 1]))
            if not address.is_global or address.is_multicast:
                assert not is_public(str(address))
    for top in range(0, 0x10000, 7):
        address = IPv6Address((top << 112) | 1)
        if not address.is_global or address.is_multicast:
            assert not is_public(str(address))


def at(*addresses):
    """A name with these addresses."""
    return lambda _host, _port: list(addresses)


def failing(errno):
    def look_up(_host, _port):
        raise socket.gaierror(errno, "no answer")

    return look_up


async def look_up(url, hosts=(), names=system_addresses):
    return await Resolver(1, names).addresses(parse_callback(url), hosts)


async def test_every_address_must_be_public():
    """A name with one private address among public ones is refused, and the refusal does not tell which."""
    public = ["93.184.215.14", "2606:4700::1111"]
    assert await look_up("https://client.example/", names=at(*public)) == public
    with pytest.raises(CallbackRefused) as caught:
        await look_up("https://client.example/", names=at("93.184.215.14", "10.0.0.7"))
    assert "10.0.0.7" not in str(caught.value)


async def test_named_hosts_may_be_anywhere():
    """A host that the operator names is believed, over http and at a private address too; the others are not."""
    inside = at("10.0.0.7")
    assert await look_up("http://hooks.internal:8080/", ["hooks.internal"], inside) == ["10.0.0.7"]
    with pytest.raises(CallbackRefused, match="not https"):
        await look_up("http://hooks.internal:8080/", ["others.internal"], inside)
    with pytest.raises(CallbackRefused, match="public"):
        await look_up("https://hooks.internal/", ["others.internal"], inside)


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1/", "https://[::1]/", "https://[::ffff:10.0.0.1]/", "https://169.254.169.254/"]
)
async def test_literal_addresses(url):
    """An address in the URL is judged as one that a name has."""
    with pytest.raises(CallbackRefused, match="public"):
        await look_up(url)


async def test_the_machine_itself():
    """The machine's own name for itself, from the real resolver, is refused."""
    with pytest.raises(CallbackRefused, match="public"):
        await look_up("https://localhost/")


@pytest.mark.parametrize("errno", [socket.EAI_NONAME, socket.EAI_NODATA])
async def test_a_name_without_an_address(errno):
    """A name that is known to have no address is refused."""
    with pytest.raises(CallbackRefused, match="no address"):
        await look_up("https://client.example/", names=failing(errno))


async def test_a_resolver_that_does_not_know():
    """A resolver that gives no answer says nothing about the name: that is an error of the moment."""
    with pytest.raises(OSError, match="no answer"):
        await look_up("https://client.example/", names=failing(socket.EAI_AGAIN))


async def test_a_slow_look_up_can_be_left():
    """Whoever waits for a name may give up at once; its thread counts until it ends, so there are never more (GW-6)."""
    go_on, began = threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()
    calls = []

    def slow(host, _port):
        calls.append(host)
        token.run_sync_soon(began.set)
        go_on.wait(30)
        return ["1.1.1.1"]

    resolver = Resolver(1, slow)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(resolver.addresses, parse_callback("https://slow.example/"), ())
            await began.wait()
            nursery.cancel_scope.cancel()
        assert repr(resolver) == "<Resolver 1 of 1 threads in use>"
        with trio.move_on_after(0):
            await resolver.addresses(parse_callback("https://other.example/"), ())
        assert calls == ["slow.example"]
    finally:
        go_on.set()
    assert await resolver.addresses(parse_callback("https://other.example/"), ()) == ["1.1.1.1"]
