"""The configuration file as types: every section, every key, every default.

Rules of this file:
- A field is a key of the file, under its name there (`class` and `async` are renamed, Python keeps those words).
- Times stay in seconds, sizes in bytes, as in the file.
- What one value alone can violate is in its type; what two values violate together is in `checks`.
- A secret is named (`*_env`), never held: values are in `secrets`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from gateway.config.kinds import (
    Address,
    BaseUrl,
    Bind,
    Bound,
    Count,
    CountOrZero,
    EnvName,
    FilePath,
    Host,
    JsonPointer,
    KeyHash,
    KeyPrefix,
    ModelPattern,
    Name,
    PriorityNumber,
    RedisUrl,
    Seconds,
    SecondsOrZero,
    Text,
    Weight,
)
from gateway.config.upstreams import AnyUpstream
from store.policy import TenantLimits as StoreTenantLimits

_GIB = 2**30


class Server(Struct, frozen=True, kw_only=True):
    """The two servers of a replica."""

    bind: Address = Bind("127.0.0.1", 8080)
    admin_bind: Address = Bind("127.0.0.1", 8081)
    admin_hosts: tuple[Host, ...] = ()
    max_body_bytes: Count = 100 * 2**20
    max_json_bytes: Count = 32 * 2**20
    read_timeout_s: Seconds = 30.0
    drain_lag_s: SecondsOrZero = 0.0
    drain_timeout_s: SecondsOrZero = 30.0
    max_running: Count = 64
    trusted_tenant_header: bool = True
    default_tenant: Name | None = "default"


class Key(Struct, frozen=True, kw_only=True):
    """A client's key, known by its hash alone."""

    sha256: KeyHash
    tenant: Name
    admin: bool = False


class Auth(Struct, frozen=True, kw_only=True):
    """Who may ask."""

    keys: tuple[Key, ...] = ()
    admin_token_env: EnvName | None = None


class Local(Struct, frozen=True, kw_only=True):
    """The embedded store."""

    data_dir: FilePath | None = Path("data")
    """None: a temporary directory, nothing is kept."""
    fsync: bool = True
    min_free_bytes: CountOrZero = 256 * 2**20


class Redis(Struct, frozen=True, kw_only=True):
    """The shared store. The URL may hold a password, so no repr shows it."""

    url: RedisUrl = "redis://127.0.0.1:6379/0"
    prefix: KeyPrefix = "sg"

    def __repr__(self) -> str:
        return f"Redis(url=..., prefix={self.prefix!r})"


class Jobs(Struct, frozen=True, kw_only=True):
    """Bounds and times of jobs."""

    max_queued: Bound = 100_000
    max_attempts: Count = 3
    max_crashes: Count = 3
    max_busy_s: SecondsOrZero = 3600.0
    max_stored_bytes: Count | None = None
    """None: 20 GiB local, 2 GiB redis; see `Config.max_stored_bytes`."""
    max_uploads: Count = 64
    max_group_bytes: Count = 2 * _GIB
    visibility_timeout_s: Seconds = 60.0
    heartbeat_s: Seconds = 15.0
    processing_timeout_s: Seconds = 900.0
    queue_timeout_s: Seconds | None = None
    result_ttl_s: Seconds = 86_400.0
    max_finished: CountOrZero = 1_000_000
    min_result_s: SecondsOrZero = 3600.0
    paused_ttl_s: Seconds = 604_800.0
    max_children: Count = 10_000


class Recipes(Struct, frozen=True, kw_only=True):
    """Bounds of recipes."""

    max_steps: Count = 200
    max_running: Count = 16
    exclusive_wait_s: Seconds = 300.0
    http_allowed_hosts: tuple[Host, ...] = ()


class Slots(Struct, frozen=True, kw_only=True):
    """What synchronous calls do while the store is away."""

    on_store_loss: Literal["refuse", "share"] = "refuse"


class Payloads(Struct, frozen=True, kw_only=True):
    """Where large payloads of the shared store lie."""

    dir: FilePath | None = None


class Webhooks(Struct, frozen=True, kw_only=True):
    """Where webhooks may go beside public https addresses."""

    allowed_hosts: tuple[Host, ...] = ()


class Metrics(Struct, frozen=True, kw_only=True):
    """Bounds of label values."""

    max_tenants: CountOrZero = 200


class DefaultTenantLimits(StoreTenantLimits, frozen=True, kw_only=True):
    """The limits of tenants without an entry, and of the keys that an entry leaves out."""

    weight: Weight = 1.0
    max_queued: Bound | None = None
    max_processing: Count | None = None
    models: tuple[ModelPattern, ...] = ("*",)
    min_priority: PriorityNumber = 0


class TenantLimits(DefaultTenantLimits, frozen=True, kw_only=True):
    """The limits of one tenant, complete. A store takes them as its own kind."""

    exclusive: tuple[Name, ...] = ()
    """Upstreams that the tenant's recipes may hold alone."""
    webhook_secret_env: EnvName | None = None


class TenantEntry(Struct, frozen=True, kw_only=True):
    """What the file says about one tenant; UNSET is what it leaves out."""

    weight: Weight | UnsetType = UNSET
    max_queued: Bound | UnsetType | None = UNSET
    max_processing: Count | UnsetType | None = UNSET
    models: tuple[ModelPattern, ...] | UnsetType = UNSET
    min_priority: PriorityNumber | UnsetType = UNSET
    exclusive: tuple[Name, ...] | UnsetType = UNSET
    webhook_secret_env: EnvName | UnsetType | None = UNSET


class FileSink(Struct, frozen=True, kw_only=True, tag_field="type", tag="file"):
    """JSON lines, rotated by size, hash-chained."""

    path: FilePath
    max_bytes: Count = 256 * 2**20
    keep: Count = 10
    """Closed segments that stay; events are looked for in the latest of them, so at least one."""


class HttpSink(Struct, frozen=True, kw_only=True, tag_field="type", tag="http"):
    """POST of NDJSON batches."""

    url: BaseUrl
    token_env: EnvName | None = None


class RedisStreamSink(Struct, frozen=True, kw_only=True, tag_field="type", tag="redis_stream"):
    """XADD to a capped stream."""

    stream: Text = "sg:audit"
    maxlen: Count = 1_000_000


class StdoutSink(Struct, frozen=True, kw_only=True, tag_field="type", tag="stdout"):
    """JSON lines on standard output."""


Sink = FileSink | HttpSink | RedisStreamSink | StdoutSink


class Audit(Struct, frozen=True, kw_only=True):
    """What is recorded of each call, and where it goes."""

    sinks: tuple[Sink, ...] = (FileSink(path=Path("data/audit.jsonl")),)
    body_cap_bytes: CountOrZero = 65_536
    capture: tuple[Literal["request", "response"], ...] = ("request", "response")
    redact: tuple[JsonPointer, ...] = ()
    chain_key_env: EnvName | None = None
    spool_dir: FilePath = Path("data/audit-spool")
    spool_max_bytes: Count = _GIB


class Config(Struct, frozen=True, kw_only=True):
    """The whole file. Paths are absolute once it is loaded."""

    server: Server = Server()
    auth: Auth = Auth()
    coordination: Literal["local", "redis"] = "local"
    local: Local = Local()
    redis: Redis = Redis()
    allow_external_upstreams: bool = False
    jobs: Jobs = Jobs()
    recipes: Recipes = Recipes()
    slots: Slots = Slots()
    payloads: Payloads = Payloads()
    webhooks: Webhooks = Webhooks()
    metrics: Metrics = Metrics()
    tenants: Mapping[Name, TenantEntry] = {}
    default_tenant_limits: DefaultTenantLimits = DefaultTenantLimits()
    audit: Audit = Audit()
    upstreams: Annotated[tuple[AnyUpstream, ...], Meta(min_length=1)]

    @property
    def max_stored_bytes(self) -> int:
        """Bound over payloads and results held, with its default resolved."""
        default = 20 * _GIB if self.coordination == "local" else 2 * _GIB
        return self.jobs.max_stored_bytes or default

    def limits_of(self, tenant: str) -> TenantLimits:
        """The limits of a tenant: its entry, completed by the defaults."""
        limits = structs.asdict(self.default_tenant_limits)
        if entry := self.tenants.get(tenant):
            limits |= {key: value for key, value in structs.asdict(entry).items() if value is not UNSET}
        return TenantLimits(**limits)
