"""Exit codes of the command line: 0 is done."""

from typing import Final

REFUSED: Final = 1
"""Refused or failed."""
USAGE: Final = 2
"""A wrong call, or a configuration that is not valid; click's own too."""
