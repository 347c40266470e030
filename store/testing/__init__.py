"""The contract of a store as a suite, and a model store that fulfils it.

    harness      what a case is given, and `case`, which collects it
    making       submissions, executions, ways to wait and to expect
    contract_*   the cases, one topic a module
    shared_*     cases about several replicas on one ledger (`shared_cases`)
    model        the model store (model_*: its parts)

A store's test file gives its maker to each of `CASES`.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from store.testing.harness import COLLECTED, Case

for _module in iter_modules(__path__):
    if _module.name.startswith("contract_") and not _module.name.startswith("contract_shared_"):
        import_module(f"{__name__}.{_module.name}")

CASES: Final[Mapping[str, Case]] = COLLECTED
"""Every case of the modules `contract_*`, by name."""
