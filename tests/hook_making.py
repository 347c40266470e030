"""What tests of webhooks are made of."""

import base64
import hashlib
import hmac
import json

from gateway.webhooks.letter import Letter

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
URL = "https://client.example/hook?token=t0ken"


def letter(url: str = URL, *, tenant: str = "acme", **fields) -> Letter:
    return Letter(tenant=tenant, url=url, body=b'{"type":"job.completed"}', trace_id="trace-1", **fields)


def signature_of(headers: dict[str, str], body: bytes, key: bytes) -> str:
    """What the standard says the signature is, written down from its text."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def verified(headers: dict[str, str], body: bytes, key: bytes = KEY) -> dict:
    """The content of a webhook, as a receiver takes it: signature first."""
    signatures = headers["webhook-signature"].split(" ")
    assert signature_of(headers, body, key) in signatures
    return json.loads(body)
