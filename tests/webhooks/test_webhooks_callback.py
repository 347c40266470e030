"""What a callback_url may look like, and which hosts and ports it may name."""

import pytest

from gateway.webhooks.callback import (
    MAX_URL_CHARS,
    Callback,
    CallbackRefused,
    check_allowed,
    is_allowed,
    parse_callback,
)


@pytest.mark.parametrize(
    ("url", "origin", "target"),
    [
        ("https://client.example", "https://client.example", "/"),
        ("https://client.example/hook", "https://client.example", "/hook"),
        ("https://client.example:443/", "https://client.example", "/"),
        ("HTTPS://Client.EXAMPLE:8443/Hook", "https://client.example:8443", "/Hook"),
        ("https://client.example?a=b", "https://client.example", "/?a=b"),
        (
            "https://client.example/a/%2F%c3;v=1?q=a/b?c&d='(*)",
            "https://client.example",
            "/a/%2F%c3;v=1?q=a/b?c&d='(*)",
        ),
        ("http://hook_1.svc.cluster-2.local:8080/x", "http://hook_1.svc.cluster-2.local:8080", "/x"),
        ("http://localhost:80", "http://localhost", "/"),
        ("https://93.184.215.14/h", "https://93.184.215.14", "/h"),
        ("https://[2606:2800:0021::0001]:8443/h", "https://[2606:2800:21::1]:8443", "/h"),
        ("https://xn--mnchen-3ya.example/", "https://xn--mnchen-3ya.example", "/"),
    ],
)
def test_urls_that_are_taken(url, origin, target):
    """Scheme, host and port are read in their usual spelling, path and query are kept as they stand."""
    callback = parse_callback(url)
    assert (callback.origin, callback.target) == (origin, target)


SECRET = "s3cr3t"

REFUSED = [
    "",
    "client.example/hook",
    "//client.example/hook",
    "ftp://client.example/",
    "https:/client.example/",
    "https://",
    "https:///hook",
    "https://user@client.example/",
    f"https://user:{SECRET}@client.example/",
    f"https://client.example/#{SECRET}",
    "https://client.example#",
    f"https://client.example/{SECRET} x",
    " https://client.example/",
    "https://client.example/\r\nX: 1",
    "https://client.example/\n",
    "https://client.example\\@evil.example/",
    "https://client.example/\\",
    "https://client.example/%",
    "https://client.example/%zz",
    "https://client.example/ü",
    "https://münchen.example/",
    "https://client.example:/",
    "https://client.example:0/",
    "https://client.example:65536/",
    "https://client.example:4 43/",
    "https://client.example:+443/",
    "https://.example/",
    "https://a..example/",
    "https://client.example./",
    "https://-a.example/",
    f"https://{'a' * 64}.example/",
    f"https://{'a.' * 127}example/",
    "https://[::1/",
    "https://[::1]x/",
    "https://[fe80::1%25eth0]/",
    "https://[1.2.3.4]/",
    "https://::1/",
    "https://1.2.3/",
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.0x1/",
    "https://0177.0.0.01/",
    "https://1.2.3.4.5/",
    "https://256.1.1.1/",
    "https://client.example/?a[]=1",
    "https://client.example/<x>",
    f"https://client.example/{'a' * MAX_URL_CHARS}",
]


@pytest.mark.parametrize("url", REFUSED)
def test_urls_that_are_refused(url):
    """A user, a fragment, a character to be escaped, an odd host or port is refused, without repeating any of it (GW-3)."""
    with pytest.raises(CallbackRefused) as caught:
        parse_callback(url)
    assert SECRET not in str(caught.value)
    assert "example" not in str(caught.value)


def test_a_callback_shows_no_path():
    """Path and query, which may hold a secret, are in no repr (GW-3)."""
    assert (
        repr(parse_callback(f"https://client.example/{SECRET}?t={SECRET}"))
        == "<Callback https://client.example>"
    )


@pytest.mark.parametrize(
    ("url", "hosts", "allowed"),
    [
        ("http://hooks.internal/x", ["hooks.internal"], True),
        ("http://hooks.internal:8080/x", ["hooks.internal"], True),
        ("http://hooks.internal:8080/x", ["hooks.internal:8080"], True),
        ("http://hooks.internal/x", ["hooks.internal:80"], True),
        ("http://hooks.internal:8081/x", ["hooks.internal:8080"], False),
        ("http://HOOKS.internal/x", ["hooks.internal"], True),
        ("http://a.hooks.internal/x", ["hooks.internal"], False),
        ("http://hooks.internal.evil.example/x", ["hooks.internal"], False),
        ("http://[0:0::1]:9000/x", ["[::1]:9000"], True),
        ("http://127.0.0.1:9000/x", ["127.0.0.1"], True),
        ("http://127.0.0.1:9000/x", [], False),
    ],
)
def test_named_hosts(url, hosts, allowed):
    """A host of webhooks.allowed_hosts holds for every port, one with a port for that one, and for no other host."""
    callback = parse_callback(url)
    assert is_allowed(callback, hosts) is allowed
    if allowed:
        check_allowed(callback, hosts)
    else:
        with pytest.raises(CallbackRefused, match=r"webhooks\.allowed_hosts"):
            check_allowed(callback, hosts)


@pytest.mark.parametrize(
    ("port", "taken"), [(443, True), (1024, True), (65535, True), (1023, False), (25, False), (80, False)]
)
def test_ports(port, taken):
    """Beside named hosts it is https alone, to 443 or a port above 1023: others belong to other protocols."""
    callback = Callback(scheme="https", host="client.example", port=port, target="/")
    if taken:
        check_allowed(callback, [])
    else:
        with pytest.raises(CallbackRefused, match="port"):
            check_allowed(callback, [])
