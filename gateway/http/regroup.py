"""A group in the place of one that has ended: its children that completed are taken over, the others run again.

Taken over means: listed by the new group as they are, with the ids, parent and audit events that they have. Of a group
that completed as a whole nothing is taken over, so all of it runs again, as it is with a job. The new group is staged in
portions like any other, and made in one step with the old one's becoming superseded.
"""

from typing import Any

from gateway.http.message import Request
from gateway.http.submit.admission import route_for, unknown_outcome
from gateway.http.submit.asked import allowed_priority, asked_again
from gateway.http.submit.staging import Staging, staging
from gateway.registry import Route
from gateway.services import Services
from store.api_groups import STAGED_AT_ONCE
from store.errors import PayloadExpired, StoreUnavailable
from store.groups import child_id
from store.job import Job, Status, Submission
from store.ulid import new_job_id
from store.values import Adopted, Created


async def regroup(services: Services, request: Request, old: Job, renewed: dict[str, Any]) -> Created:
    """Make a new group of a finished one.

    Args:
        services: of the gateway.
        request: who asks.
        old: the parent's record.
        renewed: members of a `Submission` that are the request's, not the old record's.

    Raises:
        ApiError: MODEL_UNKNOWN, EXTERNAL_UPSTREAM_FORBIDDEN, of a child that is to run again.
        PayloadExpired: the document of one is gone.
        Draining, and what `create_group` raises: nothing was made.
    """
    parent_id = new_job_id(services.store.now())
    jobs = services.store.jobs
    async with staging(jobs, None, parent_id, services.outage) as staged:
        await _Regrouping(services, request, old, staged, renewed).stage()
        parent = asked_again(old, renewed, id=parent_id, supersedes=old.id)
        try:
            with services.gate.entering():
                created = await jobs.create_group(parent)
        except StoreUnavailable as error:
            raise unknown_outcome(services, error, parent_id) from error
        staged.made = True
    return created


class _Regrouping:
    def __init__(
        self, services: Services, request: Request, old: Job, staged: Staging, renewed: dict[str, Any]
    ) -> None:
        self._services = services
        self._request = request
        self._old = old
        self._staged = staged
        self._renewed = renewed
        self._routes: dict[str, Route] = {}

    async def stage(self) -> None:
        """Stage every child, as it is or anew."""
        total = 0 if self._old.group is None else self._old.group.total
        index = 0
        while index < total:
            children = await self._services.store.jobs.children(
                self._old.id, first=index, limit=STAGED_AT_ONCE
            )
            if not children:
                raise PayloadExpired(self._old.id)
            for child in children:
                await self._staged.add(self._child(index, child))
                index += 1
        await self._staged.flush()
        if self._staged.gone:
            raise PayloadExpired(child_id(self._old.id, min(self._staged.gone)))

    def _child(self, index: int, child: Job) -> Submission | Adopted:
        if child.status is Status.COMPLETED and self._old.status is not Status.COMPLETED:
            return Adopted(index, child.id)
        route = self._route(child)
        return asked_again(
            child,
            self._renewed,
            id=child_id(self._staged.parent_id, index),
            parent_id=self._staged.parent_id,
            index=index,
            upstream=route.upstream.name,
            priority=allowed_priority(self._services, child.tenant, child.priority),
            supersedes=None,
        )

    def _route(self, child: Job) -> Route:
        if child.model not in self._routes:
            route = route_for(self._services, self._request, child.tenant, child.model, None)
            self._routes[child.model] = route
        return self._routes[child.model]
