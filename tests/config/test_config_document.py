import pytest

from gateway.config.document import MAX_DEPTH, read_document
from gateway.config.faults import ConfigError


def test_a_duplicate_key_is_a_fault_with_both_lines():
    """A key given twice is refused by the loader, naming path and lines (GW-1)."""
    _, faults = read_document("server:\n  bind: a\n  bind: b\n")
    assert [str(fault) for fault in faults] == ["server.bind: given twice, in lines 2 and 3; expected once"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-3", -3),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("on", "on"),
        ("2024-11-30", "2024-11-30"),
        ("1:30", "1:30"),
        ("0777", "0777"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("'1'", "1"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_plain_scalars_are_those_of_yaml_1_2(text, value):
    """No date, no sexagesimal, no octal and no boolean is guessed from a plain word."""
    document, faults = read_document(f"key: {text}")
    assert document["key"] == value
    assert type(document["key"]) is type(value)
    assert not faults


def test_keys_are_the_text_that_stands_there():
    """A tenant may be called `no`, `123` or `null`."""
    document, _ = read_document("tenants: {no: 1, 123: 2, null: 3}")
    assert document == {"tenants": {"no": 1, "123": 2, "null": 3}}


def test_an_alias_repeats_a_value():
    """Anchors and aliases share a value between places."""
    document, faults = read_document("a: &x {b: 1}\nc: *x\n")
    assert document == {"a": {"b": 1}, "c": {"b": 1}}
    assert not faults


def test_an_endless_expansion_is_read_in_linear_time():
    """A value that is named again is read once, however often it is named."""
    levels = "\n".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]" for n in range(25))
    document, faults = read_document(f"a0: &a0 [x]\n{levels}\n")
    assert len(document) == 26
    assert not faults


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing",
        "- a list",
        "word",
        "a: [1",
        "a: *nowhere",
        "a: 1\n---\nb: 2",
        'a: "\\UFFFFFFFF"',
        "a: \x00",
        "a: " + "[" * (MAX_DEPTH + 1),
        "a: " + "[" * 5000,
        "%YAML 1." + "9" * 5000 + "\n---\na: 1",
        "!!python/object:os.system {a: 1}",
    ],
)
def test_what_is_no_mapping_is_refused(text):
    """Whatever is wrong with the YAML, it is a ConfigError and nothing else (GW-1)."""
    with pytest.raises(ConfigError):
        read_document(text)


@pytest.mark.parametrize(
    "text", ["a: !own 1", "a: !!int word", "a: !!timestamp x", "a: !!binary x", "a: &x [*x]", "? [1]\n: 2"]
)
def test_what_has_no_plain_value_is_a_fault(text):
    """Tags, values that contain themselves and keys that are no text are faults in their place."""
    _, faults = read_document(text)
    assert len(faults) == 1


def test_a_syntax_error_does_not_quote_the_line():
    """A line that cannot be read may hold a secret: the message names its place only (GW-3)."""
    with pytest.raises(ConfigError) as caught:
        read_document("key: sk-secret: [\n")
    assert "sk-secret" not in str(caught.value)
    assert "line 1" in str(caught.value)
