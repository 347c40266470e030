"""sync-http: one POST, and the answer is the result. For OCR services and whatever works like them."""

from typing import final

from msgspec import Struct

from adapters.api_key import ApiKey
from adapters.base import Call, Outcome, Report
from adapters.forms import FORMS, FormName
from adapters.http import HttpClient
from adapters.outcome import MAX_RESPONSE_BYTES, ErrorEnvelope, Expectation
from adapters.post import Post


class SyncHttpOptions(Struct, frozen=True, kw_only=True):
    """How one upstream is called; names as in the configuration."""

    submit_path: str
    """Begins with a slash."""
    forward: FormName = "raw"
    """In which form the document goes out."""
    file_field: str = "file"
    """Part or member that holds the document in the forms multipart and base64-json."""
    error_envelope: ErrorEnvelope | None = None
    """Where a 200 says that it is an error; answers must then be JSON."""
    max_response_bytes: int = MAX_RESPONSE_BYTES


@final
class SyncHttp:
    """Adapter for a synchronous HTTP service.

    Args:
        options: how it is called.
        client: its connections.
        api_key: the gateway's key for it; None: it needs none.
    """

    def __init__(self, options: SyncHttpOptions, client: HttpClient, api_key: ApiKey | None) -> None:
        self._form = FORMS[options.forward]
        self._file_field = options.file_field
        expected = Expectation(max_bytes=options.max_response_bytes, envelope=options.error_envelope)
        self._post = Post(client, options.submit_path, api_key, expected)

    async def run(self, call: Call, report: Report) -> Outcome:
        """Post the document; see `Adapter.run`. Pages and usage are unknown here: the answer is anybody's format.

        Raises:
            AdapterError: the upstream did not deliver.
        """
        return await self._post.send(self._form(call, self._file_field), call, report)
