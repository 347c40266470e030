"""The stub that plays Azure is itself proven: the official client accepts it as the real service.

The client has an environment of its own, which `make test-real` builds; another interpreter that has it is named by
`SLUICEGATE_AZURE_PYTHON`.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import trio

from adapters.testing.azure_stub import (
    KEY,
    RESULT,
    Accepted,
    failed,
    open_azure_stub,
    operation,
    refusal,
    running,
    succeeded,
)

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("SLUICEGATE_AZURE_PYTHON", str(ROOT / ".venvs/azure/bin/python"))
CLIENT = Path(__file__).with_name("azure_client.py")

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not Path(PYTHON).exists(), reason=f"{PYTHON} is absent; `make test-real` builds the environment"
    ),
]


async def client(action, azure, key=KEY):
    """What the official client says after it has done something."""
    command = [PYTHON, str(CLIENT), azure.url, key, action]
    with trio.fail_after(60):
        done = await trio.run_process(command, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout.decode()
    return json.loads(done.stdout)


async def test_azure_sdk_analyzes_a_document():
    """The official client submits bytes, polls and reads the result, its pages and the operation's id (GW-8)."""
    polls = [operation("notStarted"), running(10, retry_after="1"), succeeded()]
    async with open_azure_stub(polls=polls) as azure:
        said = await client("analyze_bytes", azure)
        [submit] = azure.submitted
        assert said == {
            "operation_id": azure.polled[0].target.rpartition("/")[2].partition("?")[0],
            "content": json.loads(RESULT)["content"],
            "model_id": "prebuilt-layout",
            "pages": 2,
        }
    assert (submit.header("content-type"), submit.body) == ("application/octet-stream", b"%PDF-1.7")
    assert "features=barcodes%2Clanguages" in submit.target or "features=barcodes,languages" in submit.target
    ids = {request.header("x-ms-client-request-id") for request in azure.requests}
    assert len(ids) == 1
    assert None not in ids
    assert len(azure.polled) == 3


async def test_azure_sdk_analyzes_a_url():
    """The official client submits a urlSource as JSON (GW-8)."""
    async with open_azure_stub() as azure:
        said = await client("analyze_url", azure)
        assert said == {"content": json.loads(RESULT)["content"]}
        assert json.loads(azure.submitted[0].body) == {"urlSource": "https://files.example/a.pdf"}


async def test_azure_sdk_deletes_a_result():
    """The official client deletes a result, and the stub no longer knows it (GW-8)."""
    async with open_azure_stub() as azure:
        said = await client("analyze_and_delete", azure)
        [delete] = azure.deleted
        assert said["operation_id"] in delete.target


@pytest.mark.parametrize(
    ("submits", "polls", "status", "words"),
    [
        (
            [refusal(400, "InvalidRequest", "InvalidContent")],
            [succeeded()],
            400,
            "Message of InvalidContent.",
        ),
        ([refusal(404, "NotFound", "ModelNotFound")], [succeeded()], 404, "Message of ModelNotFound."),
        ([Accepted()], [running(), failed("InternalServerError")], 200, "Message of InternalServerError."),
        ([Accepted()], [failed("InvalidRequest", status="canceled")], 200, "Message of InvalidRequest."),
    ],
)
async def test_azure_sdk_reads_the_failures(submits, polls, status, words):
    """The official client reads the stub's refusals and failed operations as the service's own (GW-8)."""
    async with open_azure_stub(submits=submits, polls=polls) as azure:
        said = await client("analyze_bytes", azure)
    assert said["status"] == status
    assert words in said["error"]


async def test_azure_sdk_reads_the_refusal_of_its_key():
    """The official client reads the stub's 401 (GW-8)."""
    async with open_azure_stub() as azure:
        said = await client("analyze_bytes", azure, key="another-key")
    assert (said["status"], said["code"]) == (401, "401")
