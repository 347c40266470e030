"""Ids of jobs."""

from itertools import pairwise

from store.ulid import ALPHABET, new_job_id, new_ulid

NOW = 1_750_000_000_000


def test_form():
    """An id is `job_` and 26 characters of Crockford's base 32 (AT-3)."""
    job_id = new_job_id(NOW)
    assert job_id.startswith("job_")
    assert len(job_id) == 4 + 26
    assert set(job_id[4:]) <= set(ALPHABET)


def test_time_is_in_front():
    """The first ten characters are the instant, so ids sort by it (AT-3)."""
    ids = [new_job_id(now) for now in (0, 1, 31, 32, NOW - 1, NOW, NOW + 1, 2**48 - 1)]
    assert ids == sorted(ids)
    assert new_ulid(1_469_918_176_385)[:10] == "01ARYZ6S41"  # the example of the ULID specification


def test_random_each():
    """Within one millisecond ids are not counted up, and none comes twice (AT-3)."""
    ids = [new_ulid(NOW) for _ in range(2000)]
    assert len(set(ids)) == len(ids)
    assert len({one[:10] for one in ids}) == 1
    rising = sum(a < b for a, b in pairwise(ids))
    assert 800 < rising < 1200


def test_eighty_bits():
    """All 80 bits behind the instant are drawn (AT-3)."""
    drawn = [
        sum(ALPHABET.index(char) << 5 * place for place, char in enumerate(reversed(one)))
        for one in (new_ulid(NOW) for _ in range(200))
    ]
    ones = zeros = 0
    for number in drawn:
        ones |= number
        zeros |= ~number
    assert ones & zeros & (2**80 - 1) == 2**80 - 1
