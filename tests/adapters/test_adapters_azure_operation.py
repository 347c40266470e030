"""Where an operation may be polled: the key goes nowhere else."""

import pytest

from adapters.azure.operation import FORGOTTEN, Locations, Operation
from adapters.base import AdapterError, Kind

ENDPOINT = "https://name.example.com"
PATH = "/documentintelligence/documentModels/m/analyzeResults/1?api-version=2024-11-30"


@pytest.mark.parametrize(
    "location",
    [
        ENDPOINT + PATH,
        f"https://name.example.com:443{PATH}",
        f"https://NAME.example.com{PATH}",
        f"HTTPS://name.example.com{PATH}",
    ],
)
def test_azure_location_at_the_endpoint(location):
    """A URL of the endpoint's scheme, host and port is polled as it is (GW-8)."""
    assert Locations(ENDPOINT).resolve(location).lower() == location.lower()


@pytest.mark.parametrize(
    ("endpoint", "location", "url"),
    [
        (ENDPOINT, PATH, ENDPOINT + PATH),
        (ENDPOINT, PATH[1:], ENDPOINT + PATH),
        (ENDPOINT, f"//name.example.com{PATH}", ENDPOINT + PATH),
        (f"{ENDPOINT}/gw/azure", PATH, f"{ENDPOINT}/gw/azure{PATH}"),
        (f"{ENDPOINT}/gw/azure", PATH[1:], f"{ENDPOINT}/gw/azure{PATH}"),
        (f"{ENDPOINT}/gw/azure", f"/gw/azure{PATH}", f"{ENDPOINT}/gw/azure{PATH}"),
        (f"{ENDPOINT}/gw/azure", f"/gw/azurely{PATH}", f"{ENDPOINT}/gw/azure/gw/azurely{PATH}"),
        ("http://[::1]:5000", PATH, f"http://[::1]:5000{PATH}"),
        (ENDPOINT, f"{ENDPOINT}{PATH}#part", ENDPOINT + PATH),
    ],
)
def test_azure_relative_location(endpoint, location, url):
    """A relative URL is a path below the endpoint, whose own path is not doubled (GW-8)."""
    assert Locations(endpoint).resolve(location) == url


FOREIGN = [
    f"https://evil.example{PATH}",
    f"//evil.example{PATH}",
    f"http://name.example.com{PATH}",
    f"https://name.example.com:8443{PATH}",
    f"https://name.example.com.evil.example{PATH}",
    f"https://name.example.com@evil.example{PATH}",
    f"https://user@name.example.com{PATH}",
    f"https://evil.example\\@name.example.com{PATH}",
    f"https://name.example.com\t.evil.example{PATH}",
    f"https://name.example.com:0x1bb{PATH}",
    f"https://[name.example.com{PATH}",
    "file:///etc/passwd",
    "javascript:alert(1)",
    f"https://name.example.com{PATH}, https://name.example.com{PATH}",
    f"https://näme.example.com{PATH}",
    f"{ENDPOINT}/{'x' * 2000}",
]


@pytest.mark.parametrize("location", FOREIGN)
def test_azure_foreign_location_is_refused(location):
    """Any other scheme, host or port, and whatever two readers might read differently, is refused (GW-3, GW-8)."""
    with pytest.raises(AdapterError) as caught:
        Locations(ENDPOINT).resolve(location)
    assert (caught.value.kind, caught.value.code) == (Kind.PARSE, "OPERATION_LOCATION_REFUSED")
    assert len(caught.value.message) < 300


def test_azure_refusal_names_hosts_but_no_credentials():
    """The refusal says which host was named and which were expected, without what stands before an @."""
    with pytest.raises(
        AdapterError, match=r"https://evil\.example; expected https://name\.example\.com"
    ) as caught:
        Locations(ENDPOINT).resolve(f"https://user:secret@evil.example{PATH}")
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("location", [None, ""])
def test_azure_missing_location(location):
    """No Operation-Location is a failure of its own (GW-8)."""
    with pytest.raises(AdapterError) as caught:
        Locations(ENDPOINT).resolve(location)
    assert (caught.value.kind, caught.value.code) == (Kind.PARSE, "OPERATION_LOCATION_MISSING")


@pytest.mark.parametrize(
    ("host", "location", "is_allowed"),
    [
        ("other.example", f"https://other.example{PATH}", True),
        ("other.example", f"https://other.example:443{PATH}", True),
        ("other.example", f"https://other.example:8443{PATH}", False),
        ("other.example:8443", f"https://other.example:8443{PATH}", True),
        ("other.example:8443", f"https://other.example{PATH}", False),
        ("other.example", f"http://other.example{PATH}", False),
        ("other.example", f"https://sub.other.example{PATH}", False),
        ("[::1]:5000", f"https://[::1]:5000{PATH}", True),
    ],
)
def test_azure_allowed_hosts(host, location, is_allowed):
    """A listed host is exactly that host and port, and never without TLS when the endpoint has it (GW-3, GW-8)."""
    locations = Locations(ENDPOINT, (host,))
    if is_allowed:
        assert locations.resolve(location) == location
    else:
        with pytest.raises(AdapterError):
            locations.resolve(location)


def test_azure_allowed_host_of_a_plain_endpoint():
    """Beside an http endpoint a listed host may be polled over http and https, each with its default port."""
    locations = Locations("http://127.0.0.1:5000", ("other.example",))
    for url in (f"http://other.example{PATH}", f"https://other.example{PATH}"):
        assert locations.resolve(url) == url


def test_azure_rewrite_host():
    """With rewrite_host a foreign host is replaced by the endpoint; what is trusted stays (GW-3, GW-8)."""
    locations = Locations(f"{ENDPOINT}/gw", ("other.example",), rewrite_host=True)
    assert locations.resolve(f"http://di-7f9c.internal:5000{PATH}") == f"{ENDPOINT}/gw{PATH}"
    assert locations.resolve(f"http://user@di-7f9c.internal{PATH}") == f"{ENDPOINT}/gw{PATH}"
    assert locations.resolve(f"https://other.example{PATH}") == f"https://other.example{PATH}"
    with pytest.raises(AdapterError):
        locations.resolve("file:///etc/passwd")


def test_azure_saved_operation_comes_back():
    """What is saved fits into 2 KiB and comes back as it was (GW-8)."""
    operation = Operation(f"{ENDPOINT}/{'x' * (1900 - len(ENDPOINT) - 1)}", 1_700_000_000_000)
    assert len(operation.saved()) <= 2048
    assert Locations(ENDPOINT).recall(operation.saved()) == operation
    assert Operation(ENDPOINT + PATH, 0).id == "1"


@pytest.mark.parametrize(
    "state",
    [
        None,
        FORGOTTEN,
        b"\xff",
        b"{}",
        b"[" * 2000,
        b'{"x":' + b"[" * 2000,
        b'{"url":1,"submitted_ms":0}',
        b'{"url":"https://name.example.com/x"}',
        *(Operation(location, 0).saved() for location in FOREIGN),
        Operation(PATH, 0).saved(),
    ],
)
def test_azure_unreadable_or_foreign_state_is_ignored(state):
    """A saved URL is checked again; what cannot be read or may not be polled counts as none (GW-3, GW-8)."""
    assert Locations(ENDPOINT).recall(state) is None


def test_azure_saved_operation_of_another_endpoint_is_not_rewritten():
    """An operation that was accepted at one endpoint is not looked for at another, also with rewrite_host."""
    state = Operation(f"https://first.example{PATH}", 0).saved()
    assert Locations(ENDPOINT, rewrite_host=True).recall(state) is None
