"""The cases about several replicas: what every store must do that more than one process works on.

A shared store's test file gives its maker to each of `SHARED_CASES`, beside `store.testing.CASES`.
"""

from collections.abc import Mapping
from typing import Final

from store.testing import (
    contract_reports_shared,
    contract_shared_admission,
    contract_shared_claims,
    contract_shared_executions,
    contract_shared_groups,
    contract_shared_slots,
    contract_shared_stress,
    contract_shared_wakeups,
)
from store.testing.shared_harness import SHARED_COLLECTED, SharedCase

SHARED_CONTRACTS: Final = (
    contract_reports_shared,
    contract_shared_admission,
    contract_shared_claims,
    contract_shared_executions,
    contract_shared_groups,
    contract_shared_slots,
    contract_shared_stress,
    contract_shared_wakeups,
)
"""One module for each topic."""

SHARED_CASES: Final[Mapping[str, SharedCase]] = SHARED_COLLECTED
"""Every case of `SHARED_CONTRACTS`, by name."""
