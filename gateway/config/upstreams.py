"""The `upstreams` section: one struct per type of upstream, which differ in what they need and in their defaults."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from adapters.forms import FormName
from gateway.config.kinds import (
    PRIORITY_OF,
    BaseUrl,
    Count,
    CountOrZero,
    EnvName,
    HeaderName,
    Host,
    ModelId,
    Name,
    Priority,
    Seconds,
    SubmitPath,
    Text,
    UrlPath,
    Weight,
)
from store.job import PriorityClass, class_of

AdapterName = Literal["sync-http", "azure-di", "classify"]


class Endpoint(Struct, frozen=True):
    """One base URL and how many calls it takes at a time."""

    url: BaseUrl
    """Without a trailing slash."""
    slots: Count


class Health(Struct, frozen=True):
    """The active probe."""

    path: UrlPath
    interval_s: Seconds = 10.0


class Rate(Struct, frozen=True):
    """A token bucket in front of the upstream."""

    per_s: Weight
    burst: Count


class ErrorEnvelope(Struct, frozen=True):
    """How a 200 says that it is an error."""

    code_path: Text
    """Member that holds the code; dots go deeper."""
    ok: bool | int | str
    """Its value when all is well."""
    message_path: Text | None = None


class Poll(Struct, frozen=True):
    """How a long-running operation is followed."""

    min_interval_s: Seconds = 0.5
    max_interval_s: Seconds = 5.0
    allowed_hosts: tuple[Host, ...] = ()
    rewrite_host: bool = False
    delete_results: bool = False


class Upstream(Struct, frozen=True, kw_only=True, tag_field="type"):
    """A named model service, with every default resolved. Always one of the subclasses."""

    name: Name
    upstream_class: Literal["on_prem", "external_dev"] = field(name="class")
    endpoints: Annotated[tuple[Endpoint, ...], Meta(min_length=1)]
    models: Annotated[tuple[ModelId, ...], Meta(min_length=1)]
    operation: Name
    adapter: AdapterName | None = None
    submit_path: SubmitPath | None = None
    is_async: bool = field(name="async", default=False)
    """llm: may also be used through POST /jobs."""
    api_version: Text = "2024-11-30"
    timeout_s: Seconds | None = None
    """Deadline of one attempt; None: the job's processing timeout alone."""
    priority: Priority
    """Number of jobs that name none."""
    reserved_interactive: CountOrZero = 0
    """Slots that batch work may not take."""
    health: Health | None = None
    """None: passive signals only."""
    model_map: Mapping[ModelId, Text] = {}
    """What the upstream calls a model, where that differs."""
    api_key_env: EnvName | None = None
    api_key_header: HeaderName = "Authorization"
    forward: FormName = "raw"
    file_field: Text = "file"
    error_envelope: ErrorEnvelope | None = None
    max_response_bytes: Count = 64 * 2**20
    slot_wait_timeout_s: Seconds = 30.0
    max_waiters: CountOrZero = 1000
    stream_idle_timeout_s: Seconds = 60.0
    rate: Rate | None = None
    inject_usage: bool = False
    residency: Text | None = None
    poll: Poll = Poll()

    @property
    def type(self) -> str:
        """`llm`, `ocr-http` or `classify`."""
        return str(self.__struct_config__.tag)

    @property
    def external(self) -> bool:
        """Whether documents leave the premises."""
        return self.upstream_class == "external_dev"

    @property
    def slots(self) -> int:
        """Slots of all endpoints together."""
        return sum(endpoint.slots for endpoint in self.endpoints)

    @property
    def priority_class(self) -> PriorityClass:
        """The class of the default priority."""
        return class_of(self.priority)


class OcrUpstream(Upstream, frozen=True, kw_only=True, tag_field="type", tag="ocr-http"):
    """An OCR service behind HTTP."""

    adapter: AdapterName
    submit_path: SubmitPath
    operation: Name = "ocr"
    priority: Priority = PRIORITY_OF[PriorityClass.BATCH]


class ClassifyUpstream(Upstream, frozen=True, kw_only=True, tag_field="type", tag="classify"):
    """A document classifier."""

    adapter: AdapterName
    submit_path: SubmitPath
    operation: Name = "classify"
    priority: Priority = PRIORITY_OF[PriorityClass.INTERACTIVE]
    timeout_s: Seconds | None = 15.0


class LlmUpstream(Upstream, frozen=True, kw_only=True, tag_field="type", tag="llm"):
    """A service with the OpenAI routes."""

    operation: Name = "chat"
    priority: Priority = PRIORITY_OF[PriorityClass.INTERACTIVE]


AnyUpstream = OcrUpstream | ClassifyUpstream | LlmUpstream
