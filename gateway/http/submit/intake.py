"""Where the documents of a body go: into drafts of the payload store, or, of a replay, nowhere."""

from typing import Final, Protocol

from store.api_payloads import Draft
from store.job import Blob


class Intake(Protocol):
    """Takes the documents of one body."""

    def open(self) -> Draft:
        """A draft for another document."""
        ...

    async def bring(self, blob: Blob, draft: Draft) -> None:
        """Take a sealed document of a group. It waits in the store, or here for others that go there with it."""
        ...


class _Discarding:
    """A draft that keeps nothing."""

    def __init__(self) -> None:
        self._size = 0

    async def write(self, chunk: bytes) -> None:
        """Count it."""
        self._size += len(chunk)

    async def seal(
        self,
        *,
        sha256: str,
        content_type: str,
        filename: str | None = None,
        part: tuple[int, int, str] | None = None,
    ) -> Blob:
        """The blob that it would have been."""
        offset, length, part_type = part or (None, None, None)
        return Blob(
            id="",
            size=self._size,
            sha256=sha256,
            content_type=content_type,
            filename=filename,
            offset=offset,
            length=length,
            part_type=part_type,
        )


class Nowhere:
    """The intake of a replay: its documents are hashed and compared, and nothing of them is kept."""

    def open(self) -> Draft:
        """A draft that keeps nothing."""
        return _Discarding()

    async def bring(self, blob: Blob, draft: Draft) -> None:
        """Nothing is kept."""


NOWHERE: Final = Nowhere()
