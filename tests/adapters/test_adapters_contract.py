"""The adapters of one request keep the contract that the package ships."""

import pytest

from adapters.classify import Classify, ClassifyOptions
from adapters.llm import Llm, LlmOptions
from adapters.sync_http import SyncHttp, SyncHttpOptions
from adapters.testing import contract


def make_sync_http(client, api_key):
    return SyncHttp(SyncHttpOptions(submit_path="/ocr"), client, api_key)


def make_classify(client, api_key):
    return Classify(ClassifyOptions(submit_path="/classify"), client, api_key)


def make_llm(client, api_key):
    return Llm(LlmOptions(), client, api_key)


@pytest.mark.parametrize("make", [make_sync_http, make_classify, make_llm])
@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
async def test_contract(check, make):
    """Each adapter keeps each rule of the contract (AX-7, GW-3, GW-8)."""
    await check(make)
