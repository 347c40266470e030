"""The contract suite over the local store."""

import pytest
from local_harness import local_maker

from store.testing import CASES


@pytest.mark.parametrize("name", CASES)
async def test_local_store_holds(name, tmp_path, mock_clock):
    """Each case of the contract holds on SQLite (AT, AX and GW numbers stand in its docstring)."""
    await CASES[name](local_maker(tmp_path, mock_clock))
