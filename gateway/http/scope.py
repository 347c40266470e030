"""Whose jobs a route over many jobs is about."""

from gateway.http.message import Request
from gateway.problems import invalid


def scope_of(request: Request) -> str | None:
    """The caller's tenant. An operator's scope is everybody (None), or the one tenant that `?tenant=` names.

    Raises:
        ApiError: INVALID_REQUEST, an operator names two.
    """
    caller = request.caller
    if not caller.operator:
        return caller.tenant
    named = {value for name, value in request.head.query if name == "tenant"}
    if len(named) > 1:
        raise invalid("query:tenant", "given twice with different values")
    return named.pop() if named else None
