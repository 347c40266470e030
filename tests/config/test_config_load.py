from pathlib import Path

import pytest

from gateway.config import Bind, ConfigError, load_config
from gateway.config.schema import FileSink, HttpSink, RedisStreamSink, StdoutSink
from store.job import PriorityClass

EXAMPLE = Path(__file__).parents[2] / "deploy" / "gateway.example.yaml"

DEFAULTS = """
server: {bind: "127.0.0.1:8080", admin_bind: "127.0.0.1:8081", admin_hosts: [], max_body_bytes: 104857600,
  max_json_bytes: 33554432, read_timeout_s: 30, drain_lag_s: 0, drain_timeout_s: 30, max_running: 64,
  trusted_tenant_header: true, default_tenant: default}
auth: {keys: [], admin_token_env: null}
coordination: local
local: {data_dir: ./data, fsync: true, min_free_bytes: 268435456}
redis: {url: "redis://127.0.0.1:6379/0", prefix: sg}
allow_external_upstreams: false
jobs: {max_queued: 100000, max_attempts: 3, max_crashes: 3, max_busy_s: 3600, max_stored_bytes: null,
  max_uploads: 64, max_group_bytes: 2147483648, visibility_timeout_s: 60, heartbeat_s: 15,
  processing_timeout_s: 900, queue_timeout_s: null, result_ttl_s: 86400, max_finished: 1000000,
  min_result_s: 3600, paused_ttl_s: 604800, max_children: 10000}
recipes: {max_steps: 200, max_running: 16, exclusive_wait_s: 300, http_allowed_hosts: []}
slots: {on_store_loss: refuse}
payloads: {dir: null}
webhooks: {allowed_hosts: []}
metrics: {max_tenants: 200}
tenants: {}
default_tenant_limits: {weight: 1, max_queued: null, max_processing: null, models: ["*"], min_priority: 0}
audit: {sinks: [{type: file, path: ./data/audit.jsonl, max_bytes: 268435456, keep: 10}], body_cap_bytes: 65536,
  capture: [request, response], redact: [], chain_key_env: null, spool_dir: ./data/audit-spool,
  spool_max_bytes: 1073741824}
"""

UPSTREAM_DEFAULTS = """
    operation: ocr
    async: false
    api_version: 2024-11-30
    timeout_s: null
    priority: batch
    reserved_interactive: 0
    health: null
    model_map: {}
    api_key_env: null
    api_key_header: Authorization
    forward: raw
    file_field: file
    error_envelope: null
    max_response_bytes: 67108864
    slot_wait_timeout_s: 30
    max_waiters: 1000
    stream_idle_timeout_s: 60
    rate: null
    inject_usage: false
    residency: null
    poll: {min_interval_s: 0.5, max_interval_s: 5, allowed_hosts: [], rewrite_host: false, delete_results: false}
"""


def test_a_file_with_upstreams_alone_has_the_defaults_of_the_page(parse, upstream):
    """Every default is the documented one: writing them all out changes nothing (GW-1)."""
    assert parse(upstream).config == parse(DEFAULTS + upstream + UPSTREAM_DEFAULTS).config


def test_the_example_is_valid():
    """The configuration that is shipped as an example validates without any secret (GW-1)."""
    loaded = load_config(EXAMPLE, {})
    assert [upstream.name for upstream in loaded.config.upstreams] == [
        "paddleocr",
        "rapidocr",
        "azure-di",
        "doc-classifier",
        "qwen",
    ]
    loaded.require_secrets()


def test_defaults_follow_the_type(parse):
    """Operation, priority and timeout come from the type of the upstream."""
    loaded = parse("""
upstreams:
  - {name: c, type: classify, adapter: classify, class: on_prem, submit_path: /c, models: [c],
     endpoints: [{url: "http://c:1/base/", slots: 2}, {url: "http://d:1", slots: 3}]}
  - {name: q, type: llm, async: true, class: external_dev, models: [q], priority: 41,
     endpoints: [{url: "http://q:1", slots: 1}]}
""")
    classify, llm = loaded.config.upstreams
    assert (classify.type, classify.operation, classify.timeout_s) == ("classify", "classify", 15)
    assert (classify.priority, classify.priority_class) == (10, PriorityClass.INTERACTIVE)
    assert (classify.slots, classify.endpoints[0].url) == (5, "http://c:1/base")
    assert (llm.type, llm.operation, llm.timeout_s, llm.adapter) == ("llm", "chat", None, None)
    assert (llm.is_async, llm.external, llm.priority_class) == (True, True, PriorityClass.BATCH)


def test_sinks_are_told_apart_by_their_type(parse, upstream):
    """Each type of sink has its own keys and defaults."""
    loaded = parse(
        "audit: {sinks: [{type: stdout}, {type: http, url: 'https://siem/x'}, {type: redis_stream}]}\n"
        "redis: {url: 'redis://audit'}\n" + upstream
    )
    assert loaded.config.audit.sinks == (StdoutSink(), HttpSink(url="https://siem/x"), RedisStreamSink())


def test_relative_paths_count_from_the_folder_of_the_file(tmp_path, upstream):
    """Paths that are written and paths that are defaults alike; absolute ones stay."""
    file = tmp_path / "gateway.yaml"
    file.write_text("local: {data_dir: ledger}\npayloads: {dir: /shared}\n" + upstream)
    config = load_config(file, {}).config
    assert config.local.data_dir == tmp_path / "ledger"
    assert config.payloads.dir == Path("/shared")
    assert config.audit.sinks == (FileSink(path=tmp_path / "data" / "audit.jsonl"),)
    assert config.audit.spool_dir == tmp_path / "data" / "audit-spool"


def test_no_data_dir_stays_none(parse, upstream):
    """data_dir: null asks for a temporary directory."""
    assert parse("local: {data_dir: null}\n" + upstream).config.local.data_dir is None


def test_variables_are_replaced_in_strings(parse, upstream):
    """`${NAME}` in a string value is replaced, also inside of a longer one."""
    loaded = parse(
        upstream.replace("http://ocr-1:8868", "http://${HOST}:${PORT}"), {"HOST": "ocr-9", "PORT": "81"}
    )
    assert loaded.config.upstreams[0].endpoints[0].url == "http://ocr-9:81"


def test_a_replaced_value_is_not_replaced_again(parse, upstream):
    """What a variable holds is taken as it is."""
    text = upstream.replace("submit_path", "residency: ${A}\n    submit_path")
    assert parse(text, {"A": "${B}"}).config.upstreams[0].residency == "${B}"


@pytest.mark.parametrize(
    ("value", "message"),
    [("${A}${B}", "B is not set"), ("${1}", "expected ${NAME}"), ("${A", "expected ${NAME}")],
)
def test_a_missing_variable_is_a_fault(faults, upstream, value, message):
    """A variable that is not set, or none at all, is named (GW-1)."""
    text = upstream.replace("submit_path", f"residency: '{value}'\n    submit_path")
    assert message in faults(text, {"A": "x"})["upstreams[0].residency"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe\xfa"])
def test_an_unreadable_file_is_a_config_error(tmp_path, content):
    """A file that is not there or not UTF-8 is refused by name."""
    file = tmp_path / "gateway.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"gateway\.yaml"):
        load_config(file, {})


def test_limits_are_completed_by_the_defaults(parse, upstream):
    """A tenant's entry goes before default_tenant_limits, null included; other tenants have the defaults."""
    config = parse(
        "tenants: {acme: {weight: 3, max_queued: null, exclusive: [qwen]}}\n"
        "default_tenant_limits: {weight: 2, max_queued: 7, min_priority: 20, models: [paddleocr]}\n"
        + upstream
    ).config
    acme, other = config.limits_of("acme"), config.limits_of("other")
    assert (acme.weight, acme.max_queued, acme.min_priority, acme.models) == (3, None, 20, ("paddleocr",))
    assert acme.exclusive == ("qwen",)
    assert (other.weight, other.max_queued, other.min_priority, other.exclusive) == (2, 7, 20, ())


def test_stored_bytes_follow_the_store(parse, upstream):
    """max_stored_bytes null is 20 GiB local and 2 GiB redis."""
    assert parse(upstream).config.max_stored_bytes == 20 * 2**30
    assert parse("coordination: redis\n" + upstream).config.max_stored_bytes == 2 * 2**30
    assert parse("jobs: {max_stored_bytes: 5}\n" + upstream).config.max_stored_bytes == 5


def test_binds_are_read_and_written_alike(parse, upstream):
    """Names, IPv4 and IPv6 addresses, and port 0."""
    for text, bind in [
        ("127.0.0.1:0", Bind("127.0.0.1", 0)),
        ("[::1]:80", Bind("::1", 80)),
        ("localhost:1", Bind("localhost", 1)),
    ]:
        assert parse(f"server: {{bind: '{text}'}}\n" + upstream).config.server.bind == bind
        assert str(bind) == text


KEYED = "api_key_env: OCR_KEY\n    submit_path"


def test_secrets_are_read_from_the_environment(parse, upstream):
    """Keys come from the named variables only, without the line end that files leave (GW-3)."""
    text = "auth: {admin_token_env: TOKEN}\naudit: {chain_key_env: CHAIN}\n" + upstream.replace(
        "submit_path", KEYED
    )
    loaded = parse(text, {"OCR_KEY": "sk-1\n", "TOKEN": "t-2", "CHAIN": "c-3"})
    loaded.require_secrets()
    assert loaded.secrets.api_key("paddleocr") == "sk-1"
    assert loaded.secrets.api_key("other") is None
    assert (loaded.secrets.admin_token, loaded.secrets.chain_key) == ("t-2", "c-3")
    assert loaded.warnings == ()


def test_secrets_are_in_no_repr(parse, upstream):
    """Neither the loaded configuration nor its secrets show a value (GW-3)."""
    text = "redis: {url: 'redis://:${PASS}@host'}\n" + upstream.replace("submit_path", KEYED)
    loaded = parse(text, {"OCR_KEY": "sk-live-1", "PASS": "sk-live-2"})
    shown = f"{loaded!r} {loaded.secrets!r} {loaded.config!r} {loaded.config.redis!r}"
    assert "OCR_KEY" in shown
    assert "sk-live" not in shown


@pytest.mark.parametrize("value", [None, "", " \n"])
def test_a_missing_secret_is_a_warning_and_stops_serve(parse, upstream, value):
    """An unset or empty variable is a warning of the check and an error of require_secrets (GW-1)."""
    environ = {} if value is None else {"OCR_KEY": value}
    loaded = parse(upstream.replace("submit_path", KEYED), environ)
    assert loaded.secrets.api_key("paddleocr") is None
    assert "OCR_KEY is not set" in loaded.warnings[0]
    with pytest.raises(ConfigError, match="OCR_KEY"):
        loaded.require_secrets()


def test_a_secret_that_no_header_carries_is_missing(parse, upstream):
    """A value with a line break inside is refused without showing it (GW-3)."""
    loaded = parse(upstream.replace("submit_path", KEYED), {"OCR_KEY": "sk-live\r\nX: 1"})
    with pytest.raises(ConfigError) as caught:
        loaded.require_secrets()
    assert "OCR_KEY" in str(caught.value)
    assert "sk-live" not in str(caught.value)


def test_every_named_secret_is_required(parse, upstream):
    """All missing variables are listed at once, whatever names them (GW-1)."""
    text = (
        "auth: {admin_token_env: A}\n"
        "audit: {chain_key_env: B, sinks: [{type: http, url: 'https://x', token_env: C}]}\n"
        "tenants: {t: {webhook_secret_env: D}}\n" + upstream.replace("submit_path", KEYED)
    )
    assert [fault.path for fault in parse(text).missing] == [
        "auth.admin_token_env",
        "audit.chain_key_env",
        "audit.sinks[0].token_env",
        "tenants.t.webhook_secret_env",
        "upstreams[0].api_key_env",
    ]


def test_a_refused_upstream_needs_no_secret(parse, upstream):
    """An external upstream that is refused anyway neither needs its key nor warns about it."""
    external = upstream.replace("on_prem", "external_dev").replace("submit_path", KEYED)
    loaded = parse(external)
    loaded.require_secrets()
    assert ["each use of it is refused" in warning for warning in loaded.warnings] == [True]
    with pytest.raises(ConfigError, match="OCR_KEY"):
        parse("allow_external_upstreams: true\n" + external).require_secrets()
