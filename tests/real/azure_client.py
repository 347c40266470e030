"""The official client, unchanged, as a program of an environment of its own: `azure_client.py ENDPOINT KEY ACTION`.

Not a test file: `test_real_azure_sdk` runs it against the stub. It prints one JSON object.
"""

import json
import sys

from azure.ai.documentintelligence import DocumentIntelligenceClient
from azure.ai.documentintelligence.models import AnalyzeDocumentRequest
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError


def analyze(client, body, **options):
    poller = client.begin_analyze_document("prebuilt-layout", body, polling_interval=0, **options)
    result = poller.result()
    return poller.details["operation_id"], result


def analyze_bytes(client):
    operation_id, result = analyze(client, b"%PDF-1.7", pages="1-2", features=["barcodes", "languages"])
    return {
        "operation_id": operation_id,
        "content": result.content,
        "model_id": result.model_id,
        "pages": len(result.pages),
    }


def analyze_url(client):
    _, result = analyze(client, AnalyzeDocumentRequest(url_source="https://files.example/a.pdf"))
    return {"content": result.content}


def analyze_and_delete(client):
    operation_id, result = analyze(client, b"%PDF-1.7")
    client.delete_analyze_result("prebuilt-layout", operation_id)
    return {"operation_id": operation_id, "content": result.content}


ACTIONS = {action.__name__: action for action in (analyze_bytes, analyze_url, analyze_and_delete)}


def main():
    endpoint, key, action = sys.argv[1:]
    with DocumentIntelligenceClient(endpoint, AzureKeyCredential(key), retry_backoff_factor=0) as client:
        try:
            said = ACTIONS[action](client)
        except HttpResponseError as error:
            said = {
                "status": error.status_code,
                "code": error.error and error.error.code,
                "error": str(error),
            }
    sys.stdout.write(json.dumps(said))


main()
