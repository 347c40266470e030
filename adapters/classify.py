"""classify: post a document or a text, get its label. The answer is always JSON, and passed on whatever it says."""

from typing import final

from msgspec import Struct

from adapters.api_key import ApiKey
from adapters.base import Call, Outcome, Report
from adapters.forms import raw
from adapters.http import HttpClient
from adapters.outcome import MAX_RESPONSE_BYTES, Expectation
from adapters.post import Post


class ClassifyOptions(Struct, frozen=True, kw_only=True):
    """How one classifier is called; names as in the configuration."""

    submit_path: str
    """Begins with a slash."""
    max_response_bytes: int = MAX_RESPONSE_BYTES


@final
class Classify:
    """Adapter for a classifier.

    Args:
        options: how it is called.
        client: its connections.
        api_key: the gateway's key for it; None: it needs none.
    """

    def __init__(self, options: ClassifyOptions, client: HttpClient, api_key: ApiKey | None) -> None:
        expected = Expectation(max_bytes=options.max_response_bytes, must_be_json=True)
        self._post = Post(client, options.submit_path, api_key, expected)

    async def run(self, call: Call, report: Report) -> Outcome:
        """Post the document or text with its own content type; see `Adapter.run`.

        Raises:
            AdapterError: the upstream did not deliver.
        """
        return await self._post.send(raw(call), call, report)
