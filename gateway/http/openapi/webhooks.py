"""What is told of webhooks: the routes of their attempts, and the requests that receivers get."""

from collections.abc import Mapping
from typing import Final

from gateway.http.openapi import examples
from gateway.http.openapi.rows import CALLER_PROBLEMS, JOB_ID, JSON, Answer, Operation, Parameter
from gateway.http.openapi.schemas import Schema, ref
from gateway.webhooks.postman import ATTEMPT_S

_LOG: Final = Answer(
    description="The attempts made so far, the latest 50, oldest first.",
    media_type=JSON,
    schema=ref("Deliveries"),
    example=examples.deliveries,
)

DELIVERIES: Final[Mapping[str, Operation]] = {
    "get_deliveries": Operation(
        summary="See what became of a job's webhook",
        parameters=(JOB_ID,),
        answers={200: _LOG},
        problems=(*CALLER_PROBLEMS, "JOB_UNKNOWN"),
    ),
    "redeliver": Operation(
        summary="Have a job's webhook sent again",
        description="The same message, under the same id, within seconds. What is being tried anyway goes on as planned.",
        parameters=(
            JOB_ID,
            Parameter(
                place="path", name="n", description="which attempt", schema={"type": "integer", "minimum": 1}
            ),
        ),
        answers={202: _LOG},
        problems=(
            *CALLER_PROBLEMS,
            *("JOB_UNKNOWN", "DELIVERY_UNKNOWN", "JOB_STATE_CONFLICT"),
            *("PAYLOAD_TOO_LARGE", "REQUEST_TIMEOUT"),
        ),
    ),
}


def _header(name: str, description: str) -> Schema:
    return {
        "name": name,
        "in": "header",
        "required": True,
        "description": description,
        "schema": {"type": "string"},
    }


WEBHOOKS: Final[Mapping[str, Schema]] = {
    "job_ended": {
        "post": {
            "summary": "A job has ended",
            "description": (
                "Sent to the `callback_url` of a job (Standard Webhooks). 2xx within "
                f"{ATTEMPT_S:g} s is success, 410 ends it, anything else is tried again over three days."
            ),
            "parameters": [
                _header("webhook-id", "the message: the same in every attempt"),
                _header("webhook-timestamp", "of the attempt, seconds since the epoch"),
                _header("webhook-signature", "v1, and the base64 HMAC-SHA256 of id.timestamp.body"),
            ],
            "requestBody": {
                "required": True,
                "content": {JSON: {"schema": ref("Webhook"), "example": examples.webhook()}},
            },
            "responses": {"2XX": {"description": "The message is taken."}},
        }
    }
}
"""What is sent, not served."""
