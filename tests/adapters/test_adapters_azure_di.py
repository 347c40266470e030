"""azure-di against the stub that plays the service, over sockets."""

import json
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

import pytest
import trio
from msgspec.structs import replace

from adapters.api_key import ApiKey
from adapters.azure.operation import Operation
from adapters.azure_di import AzureDi, AzureDiOptions, PollOptions
from adapters.base import AdapterError, Kind
from adapters.http import open_http_client
from adapters.testing import contract, scripts
from adapters.testing.azure_stub import (
    KEY,
    KEY_HEADER,
    RESULT,
    Accepted,
    failed,
    open_azure_stub,
    operation,
    refusal,
    running,
    succeeded,
)
from adapters.testing.doubles import MemoryDocument, MemoryReport, call_for
from adapters.testing.stub import open_stub_upstream

SUBMIT_PATH = "/documentintelligence/documentModels/{model}:analyze"
NOW_MS = 1_700_000_000_000


def make_azure_di(client, api_key):
    return AzureDi(AzureDiOptions(submit_path=SUBMIT_PATH), client, api_key, lambda: NOW_MS)


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
async def test_azure_contract(check):
    """azure-di keeps each rule that every adapter keeps (AX-7, GW-3, GW-8)."""
    await check(make_azure_di)


class Case:
    """An adapter, the stub it talks to, and a call for it."""

    def __init__(self, azure, client, options, poll):
        self.azure = azure
        self.report = MemoryReport()
        waits = {"min_interval_s": 0.001, "max_interval_s": 0.01}
        settings = {"submit_path": SUBMIT_PATH, "poll": PollOptions(**waits | poll)} | options
        self.adapter = AzureDi(AzureDiOptions(**settings), client, ApiKey(KEY_HEADER, KEY), lambda: NOW_MS)
        document = MemoryDocument(b"%PDF-1.7", "application/pdf")
        self.call = replace(call_for(azure.url, document), model="prebuilt-layout")

    async def run(self, **call):
        return await self.adapter.run(replace(self.call, **call), self.report)

    async def failure(self, **call):
        with pytest.raises(AdapterError) as caught:
            await self.run(**call)
        return caught.value


@asynccontextmanager
async def open_case(*polls, submits=(), options=(), **poll):
    async with (
        open_azure_stub(submits=submits or [Accepted()], polls=polls or [running(), succeeded()]) as azure,
        open_http_client(connections=1, wall_clock=lambda: NOW_MS) as client,
    ):
        yield Case(azure, client, dict(options), poll)


def query_of(request):
    return parse_qsl(urlsplit(request.target).query)


async def test_azure_from_submit_to_result():
    """A document is submitted raw with its own type, polled, and its analyzeResult delivered verbatim (GW-8)."""
    async with open_case(running(10), operation("RUNNING", retry_after="0"), succeeded()) as case:
        outcome = await case.run(headers={"traceparent": "00-1"})
    assert (outcome.body, outcome.pages, outcome.http_status) == (RESULT, 2, 200)
    [submit] = case.azure.submitted
    assert urlsplit(submit.target).path == "/documentintelligence/documentModels/prebuilt-layout:analyze"
    assert query_of(submit) == [("api-version", "2024-11-30")]
    assert (submit.header("content-type"), submit.body) == ("application/pdf", b"%PDF-1.7")
    assert submit.header("traceparent") == "00-1"
    assert len(case.azure.polled) == 3
    assert case.azure.deleted == []
    path = urlsplit(case.azure.polled[0].target).path
    assert outcome.upstream_request_id == path.rpartition("/")[2]


async def test_azure_uses_one_connection():
    """Submit, polls and delete go over one kept connection."""
    async with (
        open_azure_stub(polls=[running(), succeeded()]) as azure,
        open_stub_upstream(azure.play) as counted,
        open_http_client(connections=1, wall_clock=lambda: NOW_MS) as client,
    ):
        azure.url = counted.url
        case = Case(azure, client, {}, {"delete_results": True})
        await case.run()
        assert counted.connections == 1
        assert [request.method for request in counted.requests] == ["POST", "GET", "GET", "DELETE"]


async def test_azure_params_become_the_query():
    """Params are query parameters, lists with commas; the api-version is the configuration's alone (GW-8)."""
    params = {
        "pages": "1-3,5",
        "features": ["barcodes", "languages"],
        "locale": None,
        "outputContentFormat": "markdown",
        "api-version": "1999-01-01",
        "API-Version": "1999-01-01",
        "queryFields": ["Total", "IBAN ä"],
    }
    async with open_case() as case:
        await case.run(params=params)
    assert query_of(case.azure.submitted[0]) == [
        ("api-version", "2024-11-30"),
        ("pages", "1-3,5"),
        ("features", "barcodes,languages"),
        ("outputContentFormat", "markdown"),
        ("queryFields", "Total,IBAN ä"),
    ]


async def test_azure_older_version():
    """2023-07-31 is another submit_path and api_version (GW-8)."""
    options = {"submit_path": "/formrecognizer/documentModels/{model}:analyze", "api_version": "2023-07-31"}
    async with open_case(options=options) as case:
        outcome = await case.run()
    assert outcome.body == RESULT
    assert case.azure.polled[0].target.startswith(
        "/formrecognizer/documentModels/prebuilt-layout/analyzeResults/"
    )
    assert query_of(case.azure.polled[0]) == [("api-version", "2023-07-31")]


async def test_azure_model_is_encoded():
    """A model's name is one path segment, whatever it holds (GW-8)."""
    async with open_case(submits=[refusal(404, "NotFound", "ModelNotFound")]) as case:
        error = await case.failure(model="my model?")
    assert error.code == "ModelNotFound"
    assert case.azure.submitted[0].target.startswith(
        "/documentintelligence/documentModels/my%20model%3F:analyze?"
    )


async def test_azure_json_input():
    """A JSON input (urlSource, base64Source) goes out as JSON, as it came (GW-8)."""
    document = MemoryDocument(b'{ "urlSource": "https://files.example/a.pdf" }', "application/json")
    async with open_case() as case:
        await case.run(document=document, is_json_input=True)
    [submit] = case.azure.submitted
    assert (submit.header("content-type"), submit.body) == ("application/json", document.data)


@pytest.mark.parametrize("location", ["{path}", "{url}{path}"])
async def test_azure_operation_location(location):
    """An absolute and a relative Operation-Location lead to the operation (GW-8)."""
    async with open_case(submits=[Accepted(location)]) as case:
        assert (await case.run()).body == RESULT


async def test_azure_key_never_goes_to_a_foreign_host():
    """A foreign Operation-Location is refused before a byte is sent there (GW-3, GW-8)."""
    async with open_stub_upstream(scripts.answer(b"{}")) as foreign:
        async with open_case(submits=[Accepted(foreign.url + "{path}")]) as case:
            error = await case.failure()
        assert (error.kind, error.code) == (Kind.PARSE, "OPERATION_LOCATION_REFUSED")
        assert foreign.connections == 0
        assert case.report.saved is None


async def test_azure_key_never_follows_a_redirect():
    """A poll that redirects is an error; the new place is never asked (GW-3, GW-8)."""
    async with open_stub_upstream(scripts.answer(b"{}")) as foreign:
        redirect = scripts.answer(b"", status=302, headers={"Location": foreign.url})
        async with open_case(redirect) as case:
            error = await case.failure()
        assert (error.kind, error.code) == (Kind.PROVIDER_4XX, "UPSTREAM_REDIRECT")
        assert foreign.connections == 0


async def test_azure_allowed_host_gets_the_key():
    """An operation at a listed host is polled there, with the key (GW-8)."""
    async with open_azure_stub() as other:
        location = f"{other.url}/documentintelligence/documentModels/m/analyzeResults/{other.accept()}"
        hosts = (urlsplit(other.url).netloc,)
        async with open_case(submits=[Accepted(location)], allowed_hosts=hosts) as case:
            assert (await case.run()).body == RESULT
        assert other.hosts_with_key == {urlsplit(other.url).netloc}
        assert case.azure.polled == []


async def test_azure_internal_host_is_rewritten():
    """With rewrite_host an internal host name is replaced by the endpoint, which alone gets the key (GW-3, GW-8)."""
    async with open_case(submits=[Accepted("http://di-7f9c.internal:5000{path}")], rewrite_host=True) as case:
        assert (await case.run()).body == RESULT
        assert case.azure.hosts_with_key == {urlsplit(case.azure.url).netloc}
        assert case.azure.url in json.loads(case.report.saved)["url"]


async def test_azure_missing_operation_location():
    """A 202 without Operation-Location is `parse` (AX-7, GW-8)."""
    async with open_case(submits=[Accepted(None)]) as case:
        error = await case.failure()
    assert (error.kind, error.code) == (Kind.PARSE, "OPERATION_LOCATION_MISSING")


async def test_azure_finished_at_once():
    """A 200 with a finished operation is its result, without a poll (GW-8)."""
    async with open_case(submits=[succeeded()]) as case:
        outcome = await case.run()
    assert (outcome.body, outcome.pages) == (RESULT, 2)
    assert case.azure.polled == []


async def test_azure_failed_at_once():
    """A 200 with a failed operation fails as a polled one does (AX-7)."""
    async with open_case(submits=[failed("InvalidRequest", "InvalidContentLength")]) as case:
        error = await case.failure()
    assert (error.kind, error.code) == (Kind.PROVIDER_4XX, "InvalidContentLength")


@pytest.mark.parametrize(
    "submit",
    [
        running(),
        scripts.answer(b"{}"),
        scripts.answer(b'{"status":"succeeded","analyzeResult":{}}', status=201),
        scripts.answer(b"<html>", content_type="text/html"),
        scripts.sends(scripts.head(204, {})),
    ],
)
async def test_azure_other_answers_to_a_submit(submit):
    """A 2xx that is neither 202 nor a finished operation is `parse` (AX-7, GW-8)."""
    async with open_case(submits=[submit]) as case:
        assert (await case.failure()).kind is Kind.PARSE


@pytest.mark.parametrize(
    ("submit", "kind", "code"),
    [
        (refusal(400, "InvalidRequest", "InvalidContent"), Kind.PROVIDER_4XX, "InvalidContent"),
        (refusal(400, "InvalidArgument", "InvalidParameter"), Kind.PROVIDER_4XX, "InvalidParameter"),
        (refusal(404, "NotFound", "ModelNotFound"), Kind.PROVIDER_4XX, "ModelNotFound"),
        (refusal(500, "InternalServerError"), Kind.PROVIDER_5XX, "InternalServerError"),
        (refusal(503, "ServiceUnavailable"), Kind.PROVIDER_5XX, "ServiceUnavailable"),
        (refusal(503, "503", headers={"Retry-After": "3"}), Kind.RATE_LIMIT, "UPSTREAM_RATE_LIMITED"),
        (refusal(429, "429", headers={"Retry-After": "1"}), Kind.RATE_LIMIT, "UPSTREAM_RATE_LIMITED"),
        (refusal(401, "401"), Kind.AUTH, "UPSTREAM_AUTH"),
        (refusal(403, "Forbidden"), Kind.AUTH, "UPSTREAM_AUTH"),
    ],
)
async def test_azure_refused_submit(submit, kind, code):
    """A refused submit has its kind by status, the service's own code, and its words; it is not tried again (AX-7, GW-8)."""
    async with open_case(submits=[submit]) as case:
        error = await case.failure()
    assert (error.kind, error.code) == (kind, code)
    assert "Message of " in error.message
    assert len(case.azure.submitted) == 1


async def test_azure_wrong_key():
    """A key that the service does not know is `auth`, and shows nowhere (AX-7, GW-3)."""
    async with (
        open_azure_stub() as azure,
        open_http_client(connections=1, wall_clock=lambda: NOW_MS) as client,
    ):
        case = Case(azure, client, {}, {})
        case.adapter = make_azure_di(client, ApiKey(KEY_HEADER, "not-the-right-key"))
        error = await case.failure()
    assert (error.kind, error.code) == (Kind.AUTH, "UPSTREAM_AUTH")
    assert "not-the-right-key" not in repr(vars(error)) + str(error) + repr(case.adapter)
    assert azure.hosts_with_key == set()


async def test_azure_trouble_while_polling_never_submits_again():
    """404 just after the submit, 429, 5xx, lost and half answers are waited out on the one operation (GW-8)."""
    whole = scripts.message(b'{"status":"running"}')
    trouble = [
        refusal(404, "NotFound"),
        refusal(429, "429"),
        refusal(500, "InternalServerError"),
        scripts.closes_before_answer(),
        scripts.resets_within_request(),
        scripts.sends_and_closes(whole[:20]),
        scripts.sends_and_closes(whole[:-5]),
        scripts.chunked([b'{"status":'], is_complete=False),
    ]
    async with open_case(*trouble, succeeded()) as case:
        assert (await case.run()).body == RESULT
    assert len(case.azure.submitted) == 1
    assert len({request.target for request in case.azure.polled}) == 1


async def test_azure_lost_submit_is_not_repeated():
    """A connection that breaks before the answer to a submit is `connect`: the service may have accepted it (AX-7)."""
    async with open_case(submits=[scripts.closes_before_answer()]) as case:
        error = await case.failure()
    assert (error.kind, error.code) == (Kind.CONNECT, "UPSTREAM_CONNECT")
    assert len(case.azure.submitted) == 1


async def test_azure_result_beyond_the_bound():
    """max_response_bytes bounds the operation's body (GW-8)."""
    async with open_case(
        succeeded(b'{"content":"%s"}' % (b"x" * 2000)), options={"max_response_bytes": 1000}
    ) as case:
        error = await case.failure()
    assert (error.kind, error.code) == (Kind.PARSE, "UPSTREAM_RESPONSE_TOO_LARGE")


async def test_azure_resumed_after_a_restart():
    """An operation that an earlier attempt saved is continued; nothing is submitted (GW-8)."""
    async with open_case() as case:
        path = f"/documentintelligence/documentModels/m/analyzeResults/{case.azure.accept()}"
        state = Operation(case.azure.url + path, NOW_MS - 60_000).saved()
        assert (await case.run(resume=state)).body == RESULT
        assert case.azure.submitted == []


async def test_azure_resumed_after_it_was_purged():
    """A saved operation that the service purged is submitted anew, once (GW-8)."""
    async with open_case() as case:
        path = "/documentintelligence/documentModels/m/analyzeResults/purged"
        state = Operation(case.azure.url + path, NOW_MS - 86_400_000).saved()
        assert (await case.run(resume=state)).body == RESULT
        assert len(case.azure.submitted) == 1
        assert json.loads(case.report.saved)["submitted_ms"] == NOW_MS


@pytest.mark.parametrize("is_deadline", [True, False])
async def test_azure_cancelled_poll_closes_its_connection(is_deadline):
    """A cancelled call closes the connection of its poll; only one past its deadline deletes the operation (GW-6, GW-8)."""
    hang = scripts.Hang()
    async with open_case(hang, delete_results=True) as case, trio.open_nursery() as nursery:
        deadline = trio.current_time() if is_deadline else trio.current_time() + 3600
        scope = trio.CancelScope()
        nursery.start_soon(cancel_when, hang.started, scope)
        with scope:
            await case.run(deadline=deadline)
        assert scope.cancelled_caught
        await hang.client_closed.wait()
        assert len(case.azure.deleted) == int(is_deadline)


async def cancel_when(event, scope):
    await event.wait()
    scope.cancel()
