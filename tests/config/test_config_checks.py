import pytest

from gateway.audit.redact import parse_pointer

LLM = '{{name: {name}, type: llm, class: on_prem, endpoints: [{{url: "http://{name}", slots: 1}}], models: [{model}]}}'


def llms(*pairs: tuple[str, str]) -> str:
    return "upstreams:\n" + "".join(f"  - {LLM.format(name=name, model=model)}\n" for name, model in pairs)


def test_a_model_belongs_to_one_upstream(faults):
    """A model that two upstreams serve is refused, naming both (GW-1)."""
    found = faults(llms(("one", "m"), ("two", "m")))
    assert list(found) == ["upstreams[1].models[0]"]
    assert "'one'" in found["upstreams[1].models[0]"]
    assert "'two'" in found["upstreams[1].models[0]"]


def test_a_name_is_one_upstream(faults):
    """A second upstream of the same name is refused (GW-1)."""
    found = faults(llms(("one", "m"), ("one", "n")))
    assert "already the name of upstreams[0]" in found["upstreams[1].name"]


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("submit_path", "reserved_interactive: 4\n    submit_path", "upstreams[0].reserved_interactive"),
        ("[paddleocr]", "[a, a]", "upstreams[0].models[1]"),
        ("[paddleocr]", "[a]\n    model_map: {b: c}", "upstreams[0].model_map.b"),
        (
            "submit_path",
            "poll: {min_interval_s: 6}\n    submit_path",
            "upstreams[0].poll.min_interval_s",
        ),
        (
            '[{url: "http://ocr-1:8868", slots: 4}]',
            '[{url: "http://x", slots: 4}, {url: "http://x/", slots: 4}]',
            "upstreams[0].endpoints[1].url",
        ),
    ],
)
def test_an_upstream_is_consistent_in_itself(edited, old, new, path):
    """Values of one upstream that exclude each other are refused (GW-1)."""
    assert list(edited(old, new)) == [path]


def test_an_audit_file_keeps_its_previous_segment(faults, upstream):
    """`keep: 0` is refused: events are looked for in the previous segment too (GW-1)."""
    assert list(faults("audit: {sinks: [{type: file, path: a, keep: 0}]}\n" + upstream)) == [
        "audit.sinks[0].keep"
    ]


def test_batch_work_keeps_a_slot(parse, upstream):
    """All slots but one may be reserved for interactive work."""
    text = upstream.replace("submit_path", "reserved_interactive: 3\n    submit_path")
    assert parse(text).config.upstreams[0].reserved_interactive == 3


def test_one_renewal_may_be_lost(faults, parse, upstream):
    """2 x heartbeat_s <= visibility_timeout_s; equal is allowed (GW-1)."""
    parse("jobs: {heartbeat_s: 30}\n" + upstream)
    found = faults("jobs: {heartbeat_s: 30.5}\n" + upstream)
    assert "expected at most 30" in found["jobs.heartbeat_s"]


@pytest.mark.parametrize("bind", ["0.0.0.0:8080", "[::]:8080", "10.1.2.3:8080", "gateway:8080"])
def test_trust_in_the_tenant_header_is_written_out_beyond_loopback(faults, parse, upstream, bind):
    """On an address that others reach, trusted_tenant_header must stand in the file (GW-1)."""
    found = faults(f"server: {{bind: '{bind}'}}\n" + upstream)
    assert list(found) == ["server.trusted_tenant_header"]
    parse(f"server: {{bind: '{bind}', trusted_tenant_header: true}}\n" + upstream)


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "127.9.9.9:80", "[::1]:80", "localhost:80"])
def test_loopback_needs_nothing_written(parse, upstream, bind):
    """On loopback the default of trusted_tenant_header holds."""
    assert parse(f"server: {{bind: '{bind}'}}\n" + upstream).config.server.trusted_tenant_header


def test_distrust_needs_keys(faults, parse, upstream):
    """trusted_tenant_header: false without auth.keys would let nobody in (GW-1)."""
    found = faults("server: {trusted_tenant_header: false}\n" + upstream)
    assert "needs auth.keys" in found["server.trusted_tenant_header"]
    keys = f"auth: {{keys: [{{sha256: {'a' * 64}, tenant: acme}}]}}\n"
    parse("server: {trusted_tenant_header: false}\n" + keys + upstream)


def test_a_reachable_admin_side_needs_a_token(faults, parse, upstream):
    """A non-loopback admin_bind needs the admin token or an admin key (GW-1)."""
    admin = "server: {admin_bind: '0.0.0.0:8081'}\n"
    assert list(faults(admin + upstream)) == ["auth.admin_token_env"]
    parse(admin + "auth: {admin_token_env: TOKEN}\n" + upstream)
    parse(admin + f"auth: {{keys: [{{sha256: {'a' * 64}, tenant: ops, admin: true}}]}}\n" + upstream)


def test_the_two_binds_differ(faults, parse, upstream):
    """Both servers cannot listen at one address; port 0 is never one address (GW-1)."""
    assert list(faults("server: {admin_bind: '127.0.0.1:8080'}\n" + upstream)) == ["server.admin_bind"]
    parse("server: {bind: '127.0.0.1:0', admin_bind: '127.0.0.1:0'}\n" + upstream)


def test_a_key_stands_once(faults, upstream):
    """One key cannot belong to two tenants (GW-1)."""
    key = "a" * 64
    found = faults(
        f"auth: {{keys: [{{sha256: {key}, tenant: a}}, {{sha256: {key}, tenant: b}}]}}\n" + upstream
    )
    assert list(found) == ["auth.keys[1].sha256"]


@pytest.mark.parametrize(
    ("sinks", "path"),
    [
        ("{type: file, path: a}, {type: stdout}, {type: file, path: ./a}", "audit.sinks[2].path"),
        ("{type: file, path: a.1}, {type: file, path: a}", "audit.sinks[0].path"),
        ("{type: http, url: 'http://x/K3Y'}, {type: http, url: 'http://x/K3Y/'}", "audit.sinks[1].url"),
        ("{type: stdout}, {type: stdout}", "audit.sinks[1]"),
        ("{type: redis_stream, stream: a}, {type: redis_stream, stream: a}", "audit.sinks[1].stream"),
        ("{type: redis_stream, stream: '{sg}:jobs'}", "audit.sinks[0].stream"),
    ],
)
def test_two_sinks_do_not_share_a_place(faults, upstream, sinks, path):
    """Each sink has a file, a receiver or a stream of its own, also after a rotation (GW-1)."""
    found = faults(f"redis: {{url: 'redis://h'}}\naudit: {{sinks: [{sinks}]}}\n" + upstream)
    assert list(found) == [path]
    assert "K3Y" not in found[path]


def test_a_stream_goes_to_a_server_that_was_named(faults, parse, upstream):
    """Without `coordination: redis` the server of a redis_stream sink must be written (GW-1)."""
    text = "audit: {sinks: [{type: redis_stream}]}\n" + upstream
    assert "expected redis.url" in faults(text)["audit.sinks[0].stream"]
    assert parse("redis: {url: 'redis://h'}\n" + text).config.coordination == "local"
    assert parse("coordination: redis\n" + text).config.audit.sinks[0].stream == "sg:audit"


@pytest.mark.parametrize("pointer", ["", "/a", "/a~1b/~0/0", "/", "//", "/a~2b", "/~", "a", "#/a"])
def test_redact_takes_what_the_audit_stream_can_follow(faults, parse, upstream, pointer):
    """What the file accepts as a JSON pointer is one, and the other way round (GW-1)."""
    text = f"audit: {{redact: ['{pointer}']}}\n" + upstream
    try:
        parse_pointer(pointer)
    except ValueError:
        assert list(faults(text)) == ["audit.redact[0]"]
    else:
        assert parse(text).config.audit.redact == (pointer,)


@pytest.mark.parametrize(
    ("section", "advice"),
    [
        ("tenants: {a: {models: [paddleocrr]}}", "did you mean 'paddleocr'?"),
        ("tenants: {a: {exclusive: [qwen]}}", "no upstream is named 'qwen'"),
        (
            "jobs: {processing_timeout_s: 10, visibility_timeout_s: 10, heartbeat_s: 5}",
            "longer than jobs.processing_timeout_s",
        ),
        ("audit: {sinks: []}", "nothing is audited"),
        ("slots: {on_store_loss: share}", "there is no store that could be lost"),
    ],
)
def test_what_is_probably_not_meant_is_a_warning(parse, upstream, section, advice):
    """What works but is hardly meant is said and not refused."""
    text = upstream.replace("submit_path", "timeout_s: 20\n    submit_path")
    [warning] = parse(section + "\n" + text).warnings
    assert advice in warning


def test_processing_timeout_below_the_visibility_timeout_is_refused(faults, upstream):
    """A job lost at once would count as stuck: an attempt's deadline is at least the visibility timeout (GW-1)."""
    found = faults("jobs: {processing_timeout_s: 30}\n" + upstream)
    assert "expected at least that" in found["jobs.processing_timeout_s"]
