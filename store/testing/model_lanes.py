"""Ready jobs and whose turn it is: stride scheduling, in plain dictionaries.

Theory
    A lane holds the ready jobs of one (upstream, tenant) at one priority number; the number implies the class. The
    lowest number that has a job goes first. Between the lanes of a number the one with the lowest (pass, seq of its
    head) goes, and a claim adds STRIDE_UNIT / weight to its pass. So a lane that is claimed from falls behind those
    that are not, in proportion to its weight.

    The present pass of an (upstream, number) is the pass that the last claimed lane had before its addition. A lane
    that gains its first job starts there, or at its own pass when that is higher: idleness saves nothing, and
    emptying a lane forgives nothing.

Rules
    - Only a claim moves a pass. Joining and leaving do not.
    - Passes are integers, so that two stores agree to the last digit.
    - Jobs of a tenant that is at its bound stay in their lanes and are passed over: they keep their pass.
"""

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from store.job import Job

STRIDE_UNIT: Final = 1_000_000
"""What a claim adds to the pass of a lane of weight 1."""


def stride(weight: float) -> int:
    """What a claim adds to the pass of a lane of this weight."""
    return max(1, round(STRIDE_UNIT / weight))


@dataclass(slots=True)
class Number:
    """The lanes of one upstream at one priority number."""

    lanes: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """By tenant: (seq, job id) in order of arrival; never empty."""
    passes: dict[str, int] = field(default_factory=dict)
    present: int = 0

    def next(self, admits: Callable[[str], bool]) -> str | None:
        """The tenant whose turn it is, among those that `admits` lets in."""
        tenants = [tenant for tenant in self.lanes if admits(tenant)]
        if not tenants:
            return None
        return min(tenants, key=lambda tenant: (self.passes[tenant], self.lanes[tenant][0]))


class Lanes:
    """All ready jobs of a ledger."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[int, Number]] = {}

    def join(self, job: Job) -> None:
        """A job has become ready."""
        number = self._numbers.setdefault(job.upstream, {}).setdefault(job.priority, Number())
        if job.tenant not in number.lanes:
            number.lanes[job.tenant] = []
            number.passes[job.tenant] = max(number.passes.get(job.tenant, 0), number.present)
        insort(number.lanes[job.tenant], (job.seq, job.id))

    def leave(self, job: Job) -> None:
        """A ready job is ready no more."""
        number = self._numbers[job.upstream][job.priority]
        number.lanes[job.tenant].remove((job.seq, job.id))
        if not number.lanes[job.tenant]:
            del number.lanes[job.tenant]

    def charge(self, job: Job, weight: float) -> None:
        """Count a claim of this ready job against its lane."""
        number = self._numbers[job.upstream][job.priority]
        number.present = number.passes[job.tenant]
        number.passes[job.tenant] += stride(weight)

    def first(self, upstream: str, ceiling: int, admits: Callable[[str], bool]) -> str | None:
        """The id of the job to claim next.

        Args:
            upstream: whose jobs.
            ceiling: only priority numbers up to this one.
            admits: tells whether a tenant may have another job claimed.
        """
        for priority, number in sorted(self._numbers.get(upstream, {}).items()):
            tenant = number.next(admits) if priority <= ceiling else None
            if tenant is not None:
                return number.lanes[tenant][0][1]
        return None

    def rank(self, job: Job, admits: Callable[[str], bool], weight: Callable[[str], float]) -> int:
        """How many ready jobs would be claimed before this one, were nothing else to happen."""
        numbers = self._numbers[job.upstream]
        sooner = (number for priority, number in numbers.items() if priority < job.priority)
        ahead = sum(len(lane) for number in sooner for tenant, lane in number.lanes.items() if admits(tenant))
        number = numbers[job.priority]
        trial = Number(
            {t: lane.copy() for t, lane in number.lanes.items() if admits(t)}, number.passes.copy()
        )
        while True:
            tenant = trial.next(admits)
            if tenant is None:
                raise AssertionError("only a job whose tenant is admitted has a rank")
            _, job_id = trial.lanes[tenant].pop(0)
            if job_id == job.id:
                return ahead
            ahead += 1
            trial.passes[tenant] += stride(weight(tenant))
            if not trial.lanes[tenant]:
                del trial.lanes[tenant]

    def of(self, tenant: str) -> Iterator[tuple[str, int]]:
        """(upstream, priority number) of each lane in which the tenant has ready jobs."""
        for upstream, numbers in self._numbers.items():
            for priority, number in numbers.items():
                if tenant in number.lanes:
                    yield upstream, priority

    def all(self) -> Iterator[tuple[str, int]]:
        """(upstream, priority number) wherever anybody has ready jobs."""
        for upstream, numbers in self._numbers.items():
            for priority, number in numbers.items():
                if number.lanes:
                    yield upstream, priority
