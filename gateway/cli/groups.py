"""Exception groups at the top of the program: `trio.run` raises a group in a group for each nursery that was left."""

from collections.abc import Iterator
from typing import TypeVar

Error = TypeVar("Error", bound=BaseException)


def leaves(group: BaseExceptionGroup[Error]) -> Iterator[Error]:
    """The errors themselves, at whatever depth."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
