"""What makes two submits the same request.

A SHA-256 over canonical JSON of what was asked (model, operation, params, after, run_at) and of the document (its
hash, name and type), or of each document of a group. It is taken from the request, not from what the configuration
makes of it, so a replay is recognised after a reload too. Priority, attempts, metadata and everything else of a replay
are ignored, how many children of a group may run at a time among them.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from gateway.http.submit.children import Child
from gateway.http.submit.options import Options
from gateway.http.submit.upload import Document


def fingerprint_of(options: Options, document: Document) -> str:
    """The fingerprint of one document, hex."""
    asked = {
        **_asked(options),
        "documents": [
            {
                "sha256": document.sha256,
                "name": document.filename,
                "type": document.content_type if document.part is None else document.part.content_type,
            }
        ],
        "fields": [(name, hashlib.sha256(value).hexdigest()) for name, value in document.other_fields],
    }
    return _digest(asked)


def fingerprint_of_group(options: Options, documents: Sequence[object]) -> str:
    """The fingerprint of a group, hex.

    Args:
        options: of the whole group.
        documents: what `identity_of` says of each child.
    """
    return _digest({**_asked(options), "children": documents})


def identity_of(child: Child, sha256: str | None) -> object:
    """What a child adds to the fingerprint of its group.

    Args:
        child: as it was asked for.
        sha256: of its document; None when that is named by a reference.
    """
    blob = child.brought
    return {
        "sha256": sha256 or child.reference,
        "name": None if blob is None else blob.filename,
        "type": child.content_type if blob is None else blob.content_type,
        "model": child.options.model,
        "params": child.options.params,
    }


def _asked(options: Options) -> dict[str, object]:
    return {
        "model": options.model,
        "operation": options.operation,
        "params": options.params,
        "after": sorted(set(options.after or ())),
        "run_at": options.run_at,
    }


def _digest(asked: object) -> str:
    return hashlib.sha256(msgspec.json.encode(asked, order="sorted")).hexdigest()
