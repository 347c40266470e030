"""Jobs of an llm upstream, from the submit to the audit event, with a stub of the service."""

from gateway_process import audit_events, running, until_all_done

from adapters.testing.llm_stub import CHAT, COMPLETION_TOKENS, EMBEDDINGS, PROMPT_TOKENS, error, open_llm_stub

KEY = "sk-of-the-gateway"


def write_config(folder, url):
    path = folder / "gateway.yaml"
    path.write_text(
        f"""
server: {{bind: 127.0.0.1:0, admin_bind: 127.0.0.1:0, drain_timeout_s: 2}}
local: {{data_dir: data, min_free_bytes: 0}}
audit: {{sinks: [{{type: file, path: data/audit.jsonl}}]}}
upstreams:
  - name: qwen
    type: llm
    class: on_prem
    async: true
    endpoints: [{{url: "{url}", slots: 2}}]
    models: [qwen3]
    model_map: {{qwen3: Qwen/Qwen3-32B}}
    api_key_env: LLM_KEY
"""
    )
    return path


async def submitted(client, document, **options):
    response = await client.post("/jobs", json={"model": "qwen3", "input": document, **options})
    assert response.status_code == 202, response.text
    return response.json()["job_id"]


async def test_process_llm_jobs(tmp_path, monkeypatch):
    """A chat and an embedding run as jobs: the mapped model goes out, the answer is the result as it came, and its
    usage stands in the audit event and in the metrics (GW-18, GW-3)."""
    monkeypatch.setenv("LLM_KEY", KEY)
    chat = {"model": "whatever", "messages": [{"role": "user", "content": "?"}], "seed": 7}
    async with (
        open_llm_stub(key=KEY) as llm,
        running(write_config(tmp_path, llm.url), tmp_path / "log") as gateway,
        gateway.client() as client,
    ):
        ids = [await submitted(client, chat), await submitted(client, {"input": ["a"]}, operation="embed")]
        jobs = await until_all_done(client, ids)
        said = (await client.get(f"/jobs/{ids[0]}/result")).json()
        metrics = (await client.get(f"{gateway.admin}/metrics")).text
        asked = {call.path: call.body for call in llm.calls}
        gateway.signal(15)
        assert await gateway.ended() == 0
    assert [job["status"] for job in jobs] == ["completed", "completed"]
    assert said == jobs[0]["result"]
    assert said["choices"][0]["message"]["content"] == "Grüße für 5 €!"
    assert asked == {
        CHAT: {**chat, "model": "Qwen/Qwen3-32B"},
        EMBEDDINGS: {"input": ["a"], "model": "Qwen/Qwen3-32B"},
    }
    events = {event["operation"]: event for event in audit_events(tmp_path)}
    usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": COMPLETION_TOKENS, "pages": None}
    assert events["chat"]["usage"] == usage
    assert events["embed"]["usage"] == {**usage, "output_tokens": None}
    assert {event["model"] for event in events.values()} == {"qwen3"}
    labels = 'tenant="default",upstream="qwen"'
    assert f'gateway_tokens_total{{direction="input",{labels}}} {2.0 * PROMPT_TOKENS}' in metrics
    assert f'gateway_tokens_total{{direction="output",{labels}}} {1.0 * COMPLETION_TOKENS}' in metrics
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if KEY.encode() in path.read_bytes()]


async def test_process_llm_job_refused(tmp_path, monkeypatch):
    """What the service refuses is the job's failure, in the service's own words (AX-7)."""
    monkeypatch.setenv("LLM_KEY", KEY)
    async with (
        open_llm_stub(key=KEY) as llm,
        running(write_config(tmp_path, llm.url), tmp_path / "log") as gateway,
        gateway.client() as client,
    ):
        llm.plays(CHAT, error(400, "This model's maximum context length is 8 tokens."))
        [job] = await until_all_done(client, [await submitted(client, {"messages": []})])
    assert (job["status"], job["error_kind"], job["error_code"]) == ("failed", "provider_4xx", "UPSTREAM_4XX")
    assert "maximum context length" in job["problem"]["detail"]
