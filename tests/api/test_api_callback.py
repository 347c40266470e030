"""`callback_url`: which submits may ask for a webhook."""

import socket

import msgspec
import pytest
import trio
from api_world import JSON, RAW, Chunks
from hooked_world import PLACES, URL, asking

from gateway.http.submit import callback as module
from gateway.problems import ApiError
from gateway.webhooks.callback import CallbackRefused


async def refused(world, place: str, url: str, **more) -> str:
    """The words of the refusal at its place."""
    with pytest.raises(ApiError) as caught:
        await world.submit(**asking(place, url, **more))
    assert caught.value.code == "INVALID_REQUEST"
    [error] = caught.value.errors
    assert error.pointer == PLACES[place]
    assert world.is_empty()
    return error.detail


@pytest.mark.parametrize("place", PLACES)
async def test_it_is_recorded(hooked, place):
    """A callback_url is an option like others: header, query, form field or JSON member; its receiver is looked up once."""
    job = await hooked.submitted(**asking(place, URL))
    assert job.callback_url == URL
    assert hooked.services.resolver.asked == ["client.example"]


async def test_it_is_not_shown(hooked):
    """The job object does not show it: it may hold a secret of the receiver (GW-3)."""
    reply = await hooked.submit(**asking("json", URL))
    assert b"t0ken" not in reply.body
    job_id = msgspec.json.decode(reply.body)["job_id"]
    assert b"t0ken" not in (await hooked.get(job_id)).body


@pytest.mark.parametrize("place", PLACES)
async def test_a_tenant_without_a_secret_has_no_webhooks(hooked, place):
    """Without webhook_secret_env a callback_url is 400, by its place (20)."""
    assert "webhook_secret_env" in await refused(hooked, place, URL, tenant="other")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://client.example/", "not https"),
        ("https://127.0.0.1/", "public"),
        ("https://[::1]:8443/", "public"),
        ("https://169.254.169.254/latest", "public"),
        ("https://[64:ff9b::7f00:1]/", "public"),
        ("https://inside.example/", "public"),
        ("https://client.example:25/", "port"),
        ("https://user:t0ken@client.example/", "an https URL"),
        ("https://client.example/#t0ken", "an https URL"),
        ("https://2130706433/", "an https URL"),
        ("file:///etc/passwd", "an https URL"),
        ("", "an https URL"),
    ],
)
async def test_receivers_that_are_refused(hooked, place, url, words):
    """What is no https URL, and what lies at a private address, is 400 at the submit, by its place (20)."""
    hooked.services.resolver.known["inside.example"] = ["93.184.215.14", "10.0.0.7"]
    said = await refused(hooked, place, url)
    assert words in said
    assert "10.0.0.7" not in said
    assert "t0ken" not in said


async def test_a_name_without_an_address(hooked):
    """A name that is known to have no address is 400."""
    hooked.services.resolver.known["nowhere.example"] = CallbackRefused("its host has no address")
    assert "no address" in await refused(hooked, "json", "https://nowhere.example/")


async def test_a_resolver_that_is_away(hooked):
    """A resolver that knows nothing at the moment is no fault of the job: it is taken, and each attempt looks again."""
    hooked.services.resolver.known["later.example"] = socket.gaierror(socket.EAI_AGAIN, "later")
    assert (await hooked.submitted(**asking("json", "https://later.example/"))).callback_url


async def test_a_slow_resolver_is_not_waited_for(hooked):
    """A submit waits LOOK_UP_S for a name, and is taken then."""

    async def found(_host, _port):
        await trio.sleep_forever()

    hooked.services.resolver._found = found
    began = trio.current_time()
    assert (await hooked.submitted(**asking("json", URL))).callback_url
    assert trio.current_time() - began == pytest.approx(module.LOOK_UP_S)


@pytest.mark.parametrize(
    "url", ["http://hooks.internal:8080/x", "https://hooks.internal/x", "http://127.0.0.1:9000/x"]
)
async def test_named_hosts_are_believed(hooked, url):
    """A host of webhooks.allowed_hosts may be private, speak http and have any port; nobody looks it up at the submit."""
    assert (await hooked.submitted(**asking("json", url))).callback_url == url
    assert hooked.services.resolver.asked == []


async def test_head_options_are_refused_before_the_body(hooked):
    """A receiver in a header is refused before the first byte of the body is read."""
    body = Chunks([b"%PDF"])
    with pytest.raises(ApiError, match="public"):
        await hooked.submit(body, RAW | {"x-callback-url": "https://127.0.0.1/"})
    assert body.read == 0


async def test_twice_and_differently(hooked):
    """Two different receivers are refused; the same one twice is one, and looked up once."""
    body = msgspec.json.encode({"model": "paddleocr", "input": {}, "callback_url": URL})
    with pytest.raises(ApiError, match="given twice"):
        await hooked.submit(body, JSON | {"x-callback-url": "https://other.example/"})
    hooked.services.resolver.asked.clear()
    job = await hooked.submitted(body, JSON | {"x-callback-url": URL})
    assert (job.callback_url, hooked.services.resolver.asked) == (URL, ["client.example"])


async def test_a_replay_looks_nothing_up(hooked):
    """A repetition with its key is the first one's job, whatever has become of the receiver; the first receiver stays."""
    first = await hooked.submitted(**asking("json", URL) | {"headers": JSON | {"idempotency-key": "k"}})
    hooked.services.resolver.known["client.example"] = ["10.0.0.1"]
    again = await hooked.submitted(**asking("json", URL) | {"headers": JSON | {"idempotency-key": "k"}})
    assert (again.id, again.callback_url) == (first.id, URL)
    assert hooked.services.resolver.asked == ["client.example"]
