"""What an upstream may answer, as a table, and the check that holds an HTTP client to it."""

from typing import Final

from adapters.testing.answers.behaviour import Behaviour
from adapters.testing.answers.connection import CONNECTION
from adapters.testing.answers.content import CONTENT
from adapters.testing.answers.framing import FRAMING
from adapters.testing.answers.statuses import STATUSES

BEHAVIOURS: Final[tuple[Behaviour, ...]] = (*FRAMING, *CONNECTION, *CONTENT, *STATUSES)
"""Every row has a name of its own."""
