"""The azure-di upstream as the configuration builds it, and what the runner tells its adapter."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio
from manager_world import Scripted, answer, managing
from msgspec.structs import replace

from adapters.testing.azure_stub import KEY, RESULT, Accepted, open_azure_stub, running, succeeded
from adapters.testing.doubles import MemoryDocument, MemoryReport, call_for
from gateway.config import parse_config
from gateway.config.secrets import Secrets
from gateway.health import Health
from gateway.manager.upstreams import open_targets
from store.job import Status
from store.policy import StorePolicy
from store.testing.making import submit, until_done
from store.testing.model import open_model
from store.testing.model_harness import trio_clock

CONFIG = """
allow_external_upstreams: {allowed}
upstreams:
  - name: azure
    type: ocr-http
    adapter: azure-di
    class: external_dev
    endpoints: [{{url: "{url}", slots: 2}}]
    models: [layout]
    model_map: {{layout: prebuilt-layout}}
    submit_path: "/formrecognizer/documentModels/{{model}}:analyze"
    api_version: "2023-07-31"
    api_key_env: AZURE_DI_KEY
    api_key_header: Ocp-Apim-Subscription-Key
    poll: {{min_interval_s: 0.001, max_interval_s: 0.002, rewrite_host: true, delete_results: true}}
    max_response_bytes: 100000
"""


def config_for(url, *, allowed="true"):
    return parse_config(CONFIG.format(url=url, allowed=allowed), Path("/"), os.environ).config


async def test_manager_builds_the_azure_adapter():
    """Path, version, key, poll options and bound of the configuration reach the service (GW-8, GW-3)."""
    polls = [running(), succeeded()]
    async with open_azure_stub(submits=[Accepted("http://internal.host{path}")], polls=polls) as azure:
        config = config_for(azure.url)
        secrets = Secrets({("api_key", "azure"): KEY})
        async with open_targets(config, secrets, lambda: 0, Health(config.upstreams)) as [target]:
            call = replace(call_for(azure.url, MemoryDocument(b"x")), model="prebuilt-layout")
            outcome = await target.adapter.run(call, MemoryReport())
        assert outcome.body == RESULT
        [sent] = azure.submitted
        assert sent.target == "/formrecognizer/documentModels/prebuilt-layout:analyze?api-version=2023-07-31"
        assert (len(azure.polled), len(azure.deleted)) == (2, 1)
        assert azure.hosts_with_key == {urlsplit(azure.url).netloc}


async def test_manager_builds_no_forbidden_azure_adapter():
    """An external upstream that is not allowed has no adapter and no connections (GW-2)."""
    config = config_for("http://127.0.0.1:1", allowed="false")
    async with open_targets(config, Secrets({}), lambda: 0, Health(config.upstreams)) as targets:
        assert targets == []


@pytest.fixture
async def store(autojump_clock):
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        yield store


async def test_manager_tells_the_adapter_its_deadline(autojump_clock, store):
    """A call carries the instant at which the attempt will end, so that an adapter knows why it is cancelled (GW-8)."""
    seen = []

    async def too_slow(call, _report):
        seen.append(call.deadline - trio.current_time())
        try:
            await trio.sleep_forever()
        finally:
            seen.append(call.deadline - trio.current_time())

    async with managing(store, {"ocr": Scripted(too_slow)}, timeout_s=120):
        job = await submit(store, max_attempts=1)
        done = await until_done(store, job.id)
    assert (done.status, done.error_code) == (Status.FAILED, "TIMEOUT")
    assert seen == [120, 0]


async def test_manager_gives_an_adapter_what_it_saved(autojump_clock, store):
    """What an adapter saved comes back with the next execution of the same job (GW-8)."""
    resumed = []
    saved = trio.Event()

    async def saves_and_is_cut(call, report):
        resumed.append(call.resume)
        if call.resume is None:
            await report.save(b"operation 1")
            saved.set()
            await trio.sleep_forever()
        return answer()

    adapter = Scripted(saves_and_is_cut)
    async with managing(store, {"ocr": adapter}, drain_timeout_s=0.0) as world:
        job = await submit(store)
        await saved.wait()
        world.executions.cut("drain: test")
        done = await until_done(store, job.id)
    assert done.status is Status.COMPLETED
    assert resumed == [None, b"operation 1"]
