"""Small blobs that were just written or just claimed: what needs them next need not read them back.

A document is read when its job is called and again for its audit event, a result for the event and by the client.
Bounded in bytes, the least recently used go first. A blob that the ledger removes is dropped in the same answer.
"""

from collections import OrderedDict
from typing import Final

CACHED_BYTES: Final = 16 * 2**20


class InlineCache:
    """Blob id to bytes. Used on the loop; membership alone may be asked from a thread."""

    def __init__(self, bound: int = CACHED_BYTES) -> None:
        self._bound = bound
        self._blobs: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def __repr__(self) -> str:
        return f"<InlineCache {len(self._blobs)} blobs, {self._size} bytes>"

    def __contains__(self, blob_id: object) -> bool:
        return blob_id in self._blobs

    def put(self, blob_id: str, content: bytes) -> None:
        """Keep a blob, at the cost of the least recently used."""
        self.drop(blob_id)
        self._blobs[blob_id] = content
        self._size += len(content)
        while self._size > self._bound:
            _, gone = self._blobs.popitem(last=False)
            self._size -= len(gone)

    def get(self, blob_id: str) -> bytes | None:
        """A blob, if it is here."""
        content = self._blobs.get(blob_id)
        if content is not None:
            self._blobs.move_to_end(blob_id)
        return content

    def drop(self, blob_id: str) -> None:
        """Forget a blob."""
        self._size -= len(self._blobs.pop(blob_id, b""))
