"""The invariants, put together: a run is good when no check has anything to say.

A check is a function of a history that yields what is wrong, in words. None of them knows how the product works
inside; each has been seen to object to a history that was written for it.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from chaos.history import History
from chaos.oracle_acts import ACT_CHECKS
from chaos.oracle_attempts import ATTEMPT_CHECKS
from chaos.oracle_audit import AUDIT_CHECKS
from chaos.oracle_calls import CALL_CHECKS
from chaos.oracle_jobs import JOB_CHECKS
from chaos.oracle_rest import REST_CHECKS

Check = Callable[[History], Iterator[str]]

CHECKS: tuple[Check, ...] = (
    *JOB_CHECKS,
    *ACT_CHECKS,
    *CALL_CHECKS,
    *ATTEMPT_CHECKS,
    *AUDIT_CHECKS,
    *REST_CHECKS,
)

SHOWN = 5
"""So many findings of one check are told; the rest is counted."""


def faults_of(history: History) -> list[str]:
    """What is wrong with a run; empty when it kept every invariant."""
    found = []
    for check in CHECKS:
        faults = list(check(history))
        found += [f"{check.__name__}: {fault}" for fault in faults[:SHOWN]]
        if len(faults) > SHOWN:
            found.append(f"{check.__name__}: and {len(faults) - SHOWN} more")
    return found


def tally(history: History) -> Counter[str]:
    """How many findings each check has."""
    return Counter({check.__name__: len(list(check(history))) for check in CHECKS})
