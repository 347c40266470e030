"""Which upstream serves what: from a model or an operation to a route.

Rules:
- A model belongs to exactly one upstream; the configuration has made sure of that.
- What a tenant may not use does not exist for it: the answer is that of an unknown model.
- An external upstream may be configured while external ones are not allowed. Every use of it is refused by name, so
  that the refusal can be audited; for an operation alone it stands back behind the upstreams that are allowed.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from msgspec import Struct

from adapters.llm import CHAT, EMBED
from gateway.config.schema import Config
from gateway.config.upstreams import LlmUpstream, Upstream

_LLM_OPERATIONS: Final = (CHAT, EMBED)


class RegistryError(Exception):
    """A request that leads to no upstream. `code` is the problem code to answer with; the text is its detail."""

    code: ClassVar[str] = "INVALID_REQUEST"


class UnknownModel(RegistryError):
    """No upstream serves the model on this route, or the tenant may not use it."""

    code = "MODEL_UNKNOWN"


class NothingAsked(RegistryError):
    """Neither a model nor an operation was named."""


class UnknownOperation(RegistryError):
    """No model serves the operation."""


class AmbiguousOperation(RegistryError):
    """Several models serve the operation.

    Args:
        operation: what was asked for.
        candidates: the models to choose from.
    """

    def __init__(self, operation: str, candidates: Sequence[str]) -> None:
        super().__init__(
            f"operation {operation!r} is served by {', '.join(candidates)}; expected `model` to name one of them"
        )
        self.candidates = tuple(candidates)


class OperationMismatch(RegistryError):
    """The model does not serve the operation."""


class ExternalForbidden(RegistryError):
    """The upstream is external, and external upstreams are not allowed.

    Args:
        upstream: the one that would have been used, for the audit event.
        model: the model that led to it.
    """

    code = "EXTERNAL_UPSTREAM_FORBIDDEN"

    def __init__(self, upstream: Upstream, model: str) -> None:
        super().__init__(
            f"model {model!r} is served by {upstream.name!r}, which is external; external upstreams are not allowed here"
        )
        self.upstream = upstream
        self.model = model


class Route(Struct, frozen=True):
    """Where a request goes."""

    upstream: Upstream
    model: str
    """As the client names it; the upstream's own name for it is in `upstream.model_map`."""
    operation: str


def is_job_upstream(upstream: Upstream) -> bool:
    """Whether `POST /jobs` leads to it."""
    return not isinstance(upstream, LlmUpstream) or upstream.is_async


def operations_of(upstream: Upstream) -> tuple[str, ...]:
    """What can be asked of its models, the default first."""
    if isinstance(upstream, LlmUpstream):
        return tuple(dict.fromkeys((upstream.operation, *_LLM_OPERATIONS)))
    return (upstream.operation,)


class Registry:
    """The upstreams of one configuration. Immutable; a reload makes a new one."""

    def __init__(self, config: Config) -> None:
        self._allow_external = config.allow_external_upstreams
        self._upstreams: dict[str, Upstream] = {upstream.name: upstream for upstream in config.upstreams}
        self._by_model = {model: upstream for upstream in config.upstreams for model in upstream.models}

    def upstream(self, name: str) -> Upstream | None:
        """The upstream of that name."""
        return self._upstreams.get(name)

    def served(self) -> frozenset[str]:
        """Names of the upstreams whose jobs may be run here."""
        return frozenset(
            name
            for name, upstream in self._upstreams.items()
            if is_job_upstream(upstream) and self.allowed(upstream)
        )

    def allowed(self, upstream: Upstream) -> bool:
        """Whether documents may go there."""
        return self._allow_external or not upstream.external

    def resolve(
        self, model: str | None, operation: str | None, tenant_models: Sequence[str] = ("*",)
    ) -> Route:
        """The route of a job.

        Args:
            model: as the client names it, or None.
            operation: what is to be done; None: the model's own.
            tenant_models: what the tenant may use: model ids, or "*" for all.

        Raises:
            NothingAsked: neither was given.
            UnknownModel: unknown, not the tenant's, or not served by `POST /jobs`.
            OperationMismatch: the model does not serve the operation.
            UnknownOperation: the operation alone was given, and nothing serves it.
            AmbiguousOperation: the operation alone was given, and several models serve it.
            ExternalForbidden: the upstream may not be used.
        """
        if model is not None:
            route = self._by_name(model, operation, tenant_models)
        elif operation is not None:
            route = self._by_operation(operation, tenant_models)
        else:
            raise NothingAsked("expected `model` or `operation`; neither is given")
        if not self.allowed(route.upstream):
            raise ExternalForbidden(route.upstream, route.model)
        return route

    def resolve_call(self, model: str, operation: str, tenant_models: Sequence[str] = ("*",)) -> Route:
        """The route of a synchronous call (/v1).

        Args:
            model: as the client names it.
            operation: what the route does.
            tenant_models: as of `resolve`.

        Raises:
            UnknownModel: unknown, not the tenant's, or not served by /v1.
            ExternalForbidden: the upstream may not be used.
        """
        upstream = self._known(model, tenant_models)
        if not isinstance(upstream, LlmUpstream):
            raise UnknownModel(f"model {model!r} is not served by /v1; it is used through POST /jobs")
        if not self.allowed(upstream):
            raise ExternalForbidden(upstream, model)
        return Route(upstream, model, operation)

    def call_models(self, tenant_models: Sequence[str]) -> list[Route]:
        """What a tenant may call, in the order of the configuration."""
        return [
            Route(upstream, model, upstream.operation)
            for model, upstream in self._by_model.items()
            if isinstance(upstream, LlmUpstream) and self.allowed(upstream) and _may_use(model, tenant_models)
        ]

    def _known(self, model: str, tenant_models: Sequence[str]) -> Upstream:
        upstream = self._by_model.get(model)
        if upstream is None or not _may_use(model, tenant_models):
            raise UnknownModel(f"no model {model!r}")
        return upstream

    def _by_name(self, model: str, operation: str | None, tenant_models: Sequence[str]) -> Route:
        upstream = self._known(model, tenant_models)
        if not is_job_upstream(upstream):
            raise UnknownModel(f"model {model!r} is not served by POST /jobs; it is used through /v1")
        served = operations_of(upstream)
        if operation is not None and operation not in served:
            raise OperationMismatch(
                f"model {model!r} does not serve operation {operation!r}; expected {' or '.join(served)}"
            )
        return Route(upstream, model, operation or served[0])

    def _by_operation(self, operation: str, tenant_models: Sequence[str]) -> Route:
        usable = {
            model: upstream
            for model, upstream in self._by_model.items()
            if is_job_upstream(upstream) and _may_use(model, tenant_models)
        }
        serving = {model: up for model, up in usable.items() if operation in operations_of(up)}
        candidates = {model: up for model, up in serving.items() if self.allowed(up)} or serving
        if not candidates:
            known = sorted({name for upstream in usable.values() for name in operations_of(upstream)})
            raise UnknownOperation(
                f"no model serves operation {operation!r}; expected one of: {', '.join(known) or 'none'}"
            )
        if len(candidates) > 1:
            raise AmbiguousOperation(operation, sorted(candidates))
        [(model, upstream)] = candidates.items()
        return Route(upstream, model, operation)


def _may_use(model: str, tenant_models: Sequence[str]) -> bool:
    return "*" in tenant_models or model in tenant_models
