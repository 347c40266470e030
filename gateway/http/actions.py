"""What people do to jobs and upstreams, as the audit stream tells it."""

from gateway.audit import Action
from gateway.http.message import Request
from gateway.problems import shown
from gateway.services import Services


def note_action(
    services: Services, request: Request, action: str, target: str, *, tenant: str | None = None
) -> None:
    """Audit something that was done, after it was done.

    Args:
        services: of the gateway.
        request: who did it. A client is named by its tenant, and by the X-User-Id that it sent.
        action: what, in a word.
        target: to what: a job's id, an upstream's name.
        tenant: whose target it is; None: nobody's alone.
    """
    services.emitter.action(
        Action(
            action=action, actor=_actor(request), target=target, trace_id=request.request_id, tenant=tenant
        )
    )


def _actor(request: Request) -> str:
    caller, user = request.caller, request.head.header("x-user-id") or ""
    if caller.operator or not user or not user.isprintable():
        return caller.tenant
    return f"{caller.tenant}/{shown(user)}"
