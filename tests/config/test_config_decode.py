import pytest


def test_an_unknown_key_is_refused_with_a_near_miss(faults, upstream):
    """A key that is almost one of the schema's is named with it (GW-1)."""
    found = faults("server: {drain_timout_s: 5}\njobz: {}\n" + upstream)
    assert found == {
        "server.drain_timout_s": "unknown key; did you mean 'drain_timeout_s'?",
        "jobz": "unknown key; did you mean 'jobs'?",
    }


def test_an_unknown_key_without_a_near_miss_lists_what_there_is(faults, upstream):
    """Without a near miss the message names the keys that exist (GW-1)."""
    assert faults("slots: {colour: red}\n" + upstream) == {
        "slots.colour": "unknown key; expected one of on_store_loss"
    }


def test_all_faults_are_reported_at_once(faults):
    """Faults of types, of single values, of duplicate keys and of cross checks come together (GW-1)."""
    found = faults("""
server: {max_running: 0, drain_lag_s: 1, drain_lag_s: 2}
jobs: {heartbeat_s: 40}
coordination: ldap
upstreams:
  - {name: a b, type: llm, class: on_prem, endpoints: [{url: "http://x", slots: 1}], models: [m0]}
  - {name: a, type: llm, class: on_prem, endpoints: [{url: "http://x", slots: 1}], models: [m]}
  - {name: b, type: llm, class: on_prem, endpoints: [{url: "http://x", slots: 1}], models: [m]}
""")
    assert set(found) == {
        "server.drain_lag_s",
        "server.max_running",
        "jobs.heartbeat_s",
        "coordination",
        "upstreams[0].name",
        "upstreams[2].models[0]",
    }


@pytest.mark.parametrize(
    ("section", "path", "expectation"),
    [
        ("server: null", "server", "expected a mapping, got null"),
        ("server: [1]", "server", "expected a mapping, got a list"),
        ("server: {bind: 8080}", "server.bind", "expected host:port, got the number 8080"),
        ("server: {bind: ':80'}", "server.bind", "expected host:port, got the text ':80'"),
        ("server: {bind: 'h:99999'}", "server.bind", "the port is no number from 0 to 65535"),
        ("server: {bind: '1.2.3:80'}", "server.bind", "expected host:port"),
        ("server: {read_timeout_s: -1}", "server.read_timeout_s", "seconds > 0"),
        ("server: {drain_timeout_s: -0.1}", "server.drain_timeout_s", "seconds >= 0"),
        ("server: {read_timeout_s: 1e300}", "server.read_timeout_s", "at most ten years"),
        ("server: {read_timeout_s: true}", "server.read_timeout_s", "got true"),
        ("server: {max_running: 2.0}", "server.max_running", "expected an integer >= 1, got the number 2.0"),
        ("server: {trusted_tenant_header: 1}", "server.trusted_tenant_header", "expected true or false"),
        ("server: {default_tenant: 'a b'}", "server.default_tenant", "expected a name of 1-64"),
        ("auth: {keys: [{tenant: a}]}", "auth.keys[0].sha256", "missing; expected the SHA-256"),
        ("coordination: redi", "coordination", "expected one of local, redis, got the text 'redi'"),
        ("redis: {url: 'http://x'}", "redis.url", "the scheme is not one of redis"),
        ("redis: {url: 'redis://x:port'}", "redis.url", "host or its port is malformed"),
        ("redis: {url: 'redis+sentinel://a/x'}", "redis.url", "the form is"),
        ("redis: {prefix: ''}", "redis.prefix", "expected 1-64"),
        ("local: {data_dir: ''}", "local.data_dir", "expected a path in the file system or null"),
        ("jobs: {max_attempts: 0}", "jobs.max_attempts", "an integer >= 1"),
        ("jobs: {queue_timeout_s: 0}", "jobs.queue_timeout_s", "seconds > 0 (at most ten years) or null"),
        ("slots: {on_store_loss: wait}", "slots.on_store_loss", "expected one of refuse, share"),
        ("webhooks: {allowed_hosts: ['http://x']}", "webhooks.allowed_hosts[0]", "a host, or host:port"),
        ("tenants: {a: {weight: 0}}", "tenants.a.weight", "a number > 0"),
        ("tenants: {a: {min_priority: 101}}", "tenants.a.min_priority", "an integer from 0 to 100"),
        ("tenants: {a: {models: '*'}}", "tenants.a.models", "expected a list, got text"),
        ("tenants: {'a/b': {}}", "tenants['a/b']", "expected a name of 1-64"),
        ("audit: {sinks: [{type: fil}]}", "audit.sinks[0].type", "did you mean 'file'?"),
        ("audit: {sinks: [{type: file}]}", "audit.sinks[0].path", "missing; expected a path"),
        ("audit: {capture: [answers]}", "audit.capture[0]", "expected one of request, response"),
        ("audit: {redact: [name]}", "audit.redact[0]", "expected a JSON pointer"),
    ],
)
def test_each_refusal_names_path_value_and_expectation(faults, upstream, section, path, expectation):
    """Whatever a section holds that it may not, its path and the expectation are named (GW-1)."""
    found = faults(section + "\n" + upstream)
    assert list(found) == [path]
    assert expectation in found[path]


@pytest.mark.parametrize(
    ("old", "new", "path", "expectation"),
    [
        ("name: paddleocr", "name: ''", "upstreams[0].name", "a name of 1-64"),
        ("class: on_prem", "class: on-prem", "upstreams[0].class", "did you mean 'on_prem'?"),
        ("    class: on_prem\n", "", "upstreams[0].class", "missing; expected one of external_dev, on_prem"),
        ("    adapter: sync-http\n", "", "upstreams[0].adapter", "missing; expected one of"),
        ("    submit_path: /ocr\n", "", "upstreams[0].submit_path", "missing; expected a path"),
        ("submit_path: /ocr", "submit_path: ocr", "upstreams[0].submit_path", "does not start with a slash"),
        ("submit_path: /ocr", "submit_path: /ocr?a=1", "upstreams[0].submit_path", "a query"),
        (
            "submit_path: /ocr",
            "submit_path: '/{modle}'",
            "upstreams[0].submit_path",
            "placeholder is {model}",
        ),
        ("slots: 4", "slots: 0", "upstreams[0].endpoints[0].slots", "an integer >= 1, got the number 0"),
        ("slots: 4", "slots: '4'", "upstreams[0].endpoints[0].slots", "got the text '4'"),
        ("http://ocr-1:8868", "ftp://x", "upstreams[0].endpoints[0].url", "neither http nor https"),
        ("http://ocr-1:8868", "http://", "upstreams[0].endpoints[0].url", "names no host"),
        ("http://ocr-1:8868", "http://x/?k=1", "upstreams[0].endpoints[0].url", "a query"),
        ("http://ocr-1:8868", "http://x:0", "upstreams[0].endpoints[0].url", "port 0"),
        ("http://ocr-1:8868", "http://x:99999", "upstreams[0].endpoints[0].url", "malformed"),
        ('[{url: "http://ocr-1:8868", slots: 4}]', "[]", "upstreams[0].endpoints", "a list of at least 1"),
        ("models: [paddleocr]", "models: []", "upstreams[0].models", "a list of at least 1, got 0"),
        ("models: [paddleocr]", "models: ['*']", "upstreams[0].models[0]", "a model id"),
        ("submit_path", "priority: 101\n    submit_path", "upstreams[0].priority", "from 0 to 100"),
        (
            "submit_path",
            "priority: urgent\n    submit_path",
            "upstreams[0].priority",
            "interactive, batch or",
        ),
        ("submit_path", "forward: form\n    submit_path", "upstreams[0].forward", "raw"),
        ("submit_path", "rate: {per_s: 0, burst: 1}\n    submit_path", "upstreams[0].rate.per_s", "> 0"),
        ("submit_path", "health: {}\n    submit_path", "upstreams[0].health.path", "missing"),
    ],
)
def test_an_upstream_is_read_strictly(edited, old, new, path, expectation):
    """An upstream lacks nothing that it needs and holds nothing impossible (GW-1)."""
    found = edited(old, new)
    assert list(found) == [path]
    assert expectation in found[path]


def test_upstreams_are_required(faults):
    """At least one upstream is needed."""
    assert faults("server: {}") == {"upstreams": "missing; expected a list of at least 1"}
    assert faults("upstreams: []") == {"upstreams": "expected a list of at least 1, got 0"}


def test_an_unknown_type_hides_no_other_fault(edited):
    """Of an upstream whose type is unknown, what is wrong for every type is reported as well (GW-1)."""
    found = edited("type: ocr-http", "type: ocr\n    foo: 1")
    assert set(found) == {"upstreams[0].type", "upstreams[0].foo"}


@pytest.mark.parametrize(
    "section",
    [
        "auth: {keys: [{sha256: sk-live-1, tenant: a}]}",
        "auth: {admin_token_env: sk-live-1}",
        "auth: {keys: [sk-live-1]}",
        "auth: {keys: sk-live-1}",
        "redis: {url: 'http://:sk-live-1@host'}",
        "redis: {url: 'redis://host:sk-live-1'}",
        "audit: {sinks: [{type: http, url: 'https://user:sk-live-1@host'}]}",
        "audit: {sinks: [{type: http, url: 'https://user:sk-live-1/x@host'}]}",
        "audit: {chain_key_env: [sk-live-1]}",
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(faults, upstream, section):
    """A key that stands where its hash or the name of its variable belongs is in no message (GW-3)."""
    assert "sk-live-1" not in str(faults(section + "\n" + upstream))


def test_a_replaced_value_is_not_repeated(faults, upstream):
    """What came from the environment is in no message; the variable's name is (GW-3)."""
    found = faults("server: {bind: '${BIND}'}\n" + upstream, {"BIND": "sk-live-1"})
    assert found == {
        "server.bind": "expected host:port, got the text '${BIND}' (the port is no number from 0 to 65535)"
    }
