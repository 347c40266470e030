"""An operation that Azure has accepted survives the death of the gateway that submitted it."""

from gateway_process import audit_events, submit, until, until_all_done
from gateway_process import running as gateway_running

from adapters.testing.azure_stub import KEY, RESULT, open_azure_stub, running, succeeded


def write_config(folder, azure):
    path = folder / "gateway.yaml"
    path.write_text(
        f"""
server: {{bind: 127.0.0.1:0, admin_bind: 127.0.0.1:0, drain_timeout_s: 1}}
local: {{data_dir: data, min_free_bytes: 0}}
audit: {{sinks: [{{type: file, path: data/audit.jsonl}}]}}
allow_external_upstreams: true
upstreams:
  - name: azure
    type: ocr-http
    adapter: azure-di
    class: external_dev
    endpoints: [{{url: "{azure.url}", slots: 2}}]
    models: [stub]
    model_map: {{stub: prebuilt-layout}}
    submit_path: "/documentintelligence/documentModels/{{model}}:analyze"
    api_key_env: AZURE_DI_KEY
    api_key_header: Ocp-Apim-Subscription-Key
    poll: {{min_interval_s: 0.02, max_interval_s: 0.05}}
"""
    )
    return path


class Service:
    """Polls that show a running operation until the service is told to be done."""

    def __init__(self):
        self.is_done = False

    async def __call__(self, exchange):
        await (succeeded() if self.is_done else running(40))(exchange)


async def continued(tmp_path, end):
    """Submit, let the first gateway end while the operation runs, and have a second one finish the job."""
    service = Service()
    async with open_azure_stub(polls=[service]) as azure:
        config = write_config(tmp_path, azure)
        async with gateway_running(config, tmp_path / "first.log") as gateway, gateway.client() as client:
            job_id = (await submit(client, b"%PDF-1.7"))["job_id"]
            await until(lambda: len(azure.polled) >= 2)
            await end(gateway)
        service.is_done = True
        async with gateway_running(config, tmp_path / "second.log") as gateway, gateway.client() as client:
            [job] = await until_all_done(client, [job_id])
            result = (await client.get(f"/jobs/{job_id}/result")).content
            gateway.signal(15)
            assert await gateway.ended() == 0
    assert job["status"] == "completed"
    assert [event["pages"] for event in audit_events(tmp_path)] == [2]
    assert result == RESULT
    assert len(azure.submitted) == 1, "nothing is paid for twice"
    assert len({request.target for request in azure.polled}) == 1
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if KEY.encode() in path.read_bytes()], (
        "the key is in no file and no log"
    )
    return job


async def test_process_azure_operation_survives_kill(tmp_path, monkeypatch):
    """After kill -9 the accepted operation is polled on by the next process, not submitted again (GW-8, GW-3, AX-8)."""
    monkeypatch.setenv("AZURE_DI_KEY", KEY)
    job = await continued(tmp_path, lambda gateway: gateway.kill())
    assert [attempt["outcome"] for attempt in job["attempts"]] == ["lost", "completed"]


async def test_process_azure_operation_survives_a_drain(tmp_path, monkeypatch):
    """A drain that cuts the attempt hands the job back with its operation, uncounted (GW-8, GW-10)."""
    monkeypatch.setenv("AZURE_DI_KEY", KEY)

    async def drain(gateway):
        gateway.signal(15)
        assert await gateway.ended() == 0

    job = await continued(tmp_path, drain)
    assert [attempt["outcome"] for attempt in job["attempts"]] == ["handed_back", "completed"]
    assert job["attempt"] == 1
