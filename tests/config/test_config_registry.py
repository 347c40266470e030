import pytest

from gateway.problems import CODES
from gateway.registry import (
    AmbiguousOperation,
    ExternalForbidden,
    NothingAsked,
    OperationMismatch,
    Registry,
    RegistryError,
    UnknownModel,
    UnknownOperation,
    is_job_upstream,
)

OCR = "type: ocr-http, adapter: sync-http, submit_path: /ocr"
UPSTREAMS = f"""
upstreams:
  - {{name: paddle, {OCR}, class: on_prem, models: [paddle-a], endpoints: [{{url: "http://a", slots: 1}}]}}
  - {{name: azure, {OCR}, class: external_dev, models: [azure-a, azure-b], endpoints: [{{url: "http://b", slots: 1}}]}}
  - {{name: sorter, type: classify, adapter: classify, submit_path: /c, class: on_prem, models: [sorter],
      endpoints: [{{url: "http://c", slots: 1}}]}}
  - {{name: qwen, type: llm, class: on_prem, models: [qwen], endpoints: [{{url: "http://d", slots: 1}}]}}
  - {{name: llama, type: llm, async: true, class: on_prem, models: [llama], endpoints: [{{url: "http://e", slots: 1}}]}}
"""


@pytest.fixture
def registry(parse) -> Registry:
    return Registry(parse(UPSTREAMS).config)


@pytest.fixture
def open_registry(parse) -> Registry:
    """External upstreams are allowed."""
    return Registry(parse("allow_external_upstreams: true\n" + UPSTREAMS).config)


def test_a_model_leads_to_its_upstream(registry):
    """A model id belongs to exactly one upstream; the operation is the upstream's own (GW-2)."""
    route = registry.resolve("paddle-a", None)
    assert (route.upstream.name, route.model, route.operation) == ("paddle", "paddle-a", "ocr")
    assert registry.resolve("paddle-a", "ocr") == route


@pytest.mark.parametrize("model", ["nothing", "", "PADDLE-A", "*"])
def test_an_unknown_model_is_refused(registry, model):
    """A model that nobody serves is 404 MODEL_UNKNOWN (GW-2)."""
    with pytest.raises(UnknownModel) as caught:
        registry.resolve(model, None)
    assert CODES[caught.value.code].status == 404


def test_a_model_outside_the_tenants_list_does_not_exist(registry):
    """The answer is that of an unknown model, word for word (GW-2)."""
    with pytest.raises(UnknownModel, match=r"^no model 'paddle-a'$"):
        registry.resolve("paddle-a", None, ["sorter"])
    with pytest.raises(UnknownModel, match=r"^no model 'azure-a'$"):
        registry.resolve("azure-a", None, ["sorter"])
    assert registry.resolve("sorter", None, ["sorter"]).upstream.name == "sorter"


def test_a_plain_llm_takes_no_jobs(registry):
    """A model whose upstream does not serve POST /jobs is unknown there, and the detail says so (GW-2)."""
    with pytest.raises(UnknownModel, match="not served by POST /jobs"):
        registry.resolve("qwen", None)
    assert registry.resolve("llama", None).operation == "chat"
    assert registry.resolve("llama", "embed").operation == "embed"


def test_an_operation_alone_leads_to_its_only_model(registry):
    """An operation resolves when exactly one model serves it (GW-2)."""
    assert registry.resolve(None, "classify").model == "sorter"
    assert registry.resolve(None, "chat").model == "llama"


def test_an_operation_of_several_models_names_them(open_registry):
    """An operation that several models serve is 400 with the candidates (GW-2)."""
    with pytest.raises(AmbiguousOperation, match="azure-a, azure-b, paddle-a") as caught:
        open_registry.resolve(None, "ocr")
    assert caught.value.candidates == ("azure-a", "azure-b", "paddle-a")
    assert CODES[caught.value.code].status == 400


def test_candidates_are_those_of_the_tenant(open_registry):
    """What a tenant may not use neither counts nor is named (GW-2)."""
    assert open_registry.resolve(None, "ocr", ["paddle-a", "sorter"]).model == "paddle-a"
    with pytest.raises(UnknownOperation, match=r"expected one of: classify$"):
        open_registry.resolve(None, "ocr", ["sorter"])


def test_a_forbidden_upstream_stands_back_behind_allowed_ones(registry):
    """For an operation alone, what may not be used is no candidate while something else is (GW-2)."""
    assert registry.resolve(None, "ocr").upstream.name == "paddle"
    with pytest.raises(ExternalForbidden):
        registry.resolve(None, "ocr", ["azure-a"])


def test_an_operation_that_does_not_fit_is_refused(registry):
    """An operation that the model does not serve is 400 (GW-2)."""
    with pytest.raises(OperationMismatch, match="expected ocr") as caught:
        registry.resolve("paddle-a", "classify")
    assert CODES[caught.value.code].status == 400


def test_an_operation_that_nobody_serves_is_refused(registry):
    """An operation without a model is 400, naming the operations that there are (GW-2)."""
    with pytest.raises(UnknownOperation, match="expected one of: chat, classify, embed, ocr") as caught:
        registry.resolve(None, "translate")
    assert CODES[caught.value.code].status == 400


def test_nothing_asked_is_refused(registry):
    """A request must name a model or an operation (GW-2)."""
    with pytest.raises(NothingAsked, match="expected `model` or `operation`"):
        registry.resolve(None, None)


def test_an_external_upstream_is_refused_until_it_is_allowed(registry, open_registry):
    """external_dev is 403 and names the upstream for the audit; the flag allows it (GW-2)."""
    with pytest.raises(ExternalForbidden) as caught:
        registry.resolve("azure-a", None)
    assert (caught.value.upstream.name, caught.value.model) == ("azure", "azure-a")
    assert CODES[caught.value.code].status == 403
    assert open_registry.resolve("azure-a", None).upstream.name == "azure"


def test_upstreams_are_found_by_name(registry, open_registry):
    """A name is an upstream or nothing; whether it may be used is a question of its own."""
    azure = registry.upstream("azure")
    assert registry.upstream("nothing") is None
    assert (registry.allowed(azure), open_registry.allowed(azure)) == (False, True)
    assert registry.allowed(registry.upstream("paddle"))


def test_job_upstreams_are_ocr_classify_and_async_llms(registry):
    """POST /jobs is served by everything but a plain llm (GW-2)."""
    names = ["paddle", "azure", "sorter", "qwen", "llama"]
    assert [is_job_upstream(registry.upstream(name)) for name in names] == [True, True, True, False, True]


def test_every_refusal_has_a_code_of_the_table():
    """Each error of the registry can be answered."""
    assert all(error.code in CODES for error in RegistryError.__subclasses__())
