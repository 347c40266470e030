"""Ids of jobs: a ULID behind a prefix.

48 bits of time, then 80 random bits drawn anew for each id, in Crockford's base 32 (no I, L, O, U). Ids sort by
their millisecond, two replicas never meet, and an id says nothing about the one made before it: within one
millisecond nothing is counted up.
"""

import secrets
from typing import Final

PREFIX: Final = "job_"
ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH: Final = 26
"""Characters of a ULID: 130 bits, of which the top two are zero."""
RANDOM_BITS: Final = 80


def new_ulid(now_ms: int) -> str:
    """A ULID of this instant (ms since the epoch)."""
    number = now_ms << RANDOM_BITS | secrets.randbits(RANDOM_BITS)
    return "".join(ALPHABET[number >> shift & 31] for shift in range(5 * (LENGTH - 1), -1, -5))


def new_job_id(now_ms: int) -> str:
    """The id of a job that is made at this instant (ms since the epoch)."""
    return PREFIX + new_ulid(now_ms)
