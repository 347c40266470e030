"""The whole ledger under random scripts: the model store and the local store give the same answers."""

from contextlib import nullcontext

import pytest
from group_script import run_groups_alone, run_groups_beside
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_script import PRIORITIES, TENANTS, UPSTREAMS, local_makers, run_script

from store.testing.model_harness import model_maker

INDEX = st.integers(0, 5)


def step(name, *values):
    return st.tuples(st.just(name), *values)


SUBMIT = step(
    "submit",
    st.integers(0, len(TENANTS) - 1),
    st.integers(0, len(UPSTREAMS) - 1),
    st.integers(0, len(PRIORITIES) - 1),
    st.sampled_from([0, 0, 0, 5, 30]),
    st.integers(0, 2),
)
CLAIM = step("claim", st.integers(0, len(UPSTREAMS) - 1), st.integers(1, 4))
FINISH = step("finish", INDEX, st.integers(0, 1))
OTHER = (
    step("requeue", INDEX, st.sampled_from([0, 5, 40]), st.integers(0, 1)),
    step("hand_back", INDEX),
    step("report", INDEX, st.integers(0, 100)),
    step("renew"),
    step("save", INDEX),
    step("audited"),
    step("sweep"),
    step("advance", st.sampled_from([0.001, 1, 5, 20, 61])),
    step("orphan"),
)
STEPS = st.one_of(*[SUBMIT] * 6, *[CLAIM] * 5, *[FINISH] * 4, *OTHER)
"""Weighted, so that most scripts have jobs that run and end."""

GROUP = step(
    "group",
    st.integers(0, len(TENANTS) - 1),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(0, 1),
    st.sampled_from([0, 0, 0, 5]),
)
GROUP_STEPS = st.one_of(
    *[GROUP] * 4,
    *[CLAIM] * 5,
    *[FINISH] * 4,
    step("regroup", INDEX),
    step("cancel", st.integers(0, 30)),
    step("delete", INDEX),
    *OTHER,
)
"""Of groups, with single jobs between them."""

KEPT = {
    "a delayed job is nobody's oldest": [("submit", 0, 0, 0, 5, 0)],
}
"""Shrunk scripts of past failures, by what they found."""
KEPT_GROUPS = {
    "a group of adopted children alone is completed": [
        ("group", 0, 1, 1, 0, 0),
        ("claim", 0, 1),
        ("finish", 0, 1),
        ("regroup", 0),
    ],
}
"""The same of groups."""
KEPT_HERE = {
    "a tombstone has its time, whenever its job is swept": [
        ("group", 0, 3, 2, 0, 0),
        ("cancel", 20),
        ("orphan",),
        ("orphan",),
        ("orphan",),
        ("audited",),
    ],
}
"""Those that only these two stores answer alike."""


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.lists(STEPS, min_size=12, max_size=50))
def test_store_stateful_same_answers(script):
    """Whatever is done to both, the model store and the local store answer alike (AT-1..AT-14 in combination)."""
    run_script(script)


@pytest.mark.parametrize("name", KEPT)
def test_store_stateful_kept(name):
    """A script that once told the stores apart does so no more."""
    run_script(KEPT[name])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.lists(st.one_of(GROUP_STEPS, SUBMIT), min_size=8, max_size=30))
def test_store_stateful_groups_same_answers(script):
    """Whatever is done to groups, the model store and the local store answer alike (GW-14)."""
    with local_makers() as maker_of:
        run_groups_beside(script, maker_of)


def model_makers():
    return nullcontext(model_maker)


@pytest.mark.parametrize("makers", [model_makers, local_makers])
def test_store_stateful_groups_agree(makers):
    """Children fail, are tried again, cancelled, lost with their replica: counts are those of the statuses, the window
    is never exceeded, and the parent ends exactly once, with its last child (GW-14)."""

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
    @given(st.lists(st.one_of(GROUP_STEPS, step("lapse")), min_size=8, max_size=30))
    def play(script):
        with makers() as maker_of:
            run_groups_alone(script, maker_of)

    play()


@pytest.mark.parametrize("name", [*KEPT_GROUPS, *KEPT_HERE])
def test_store_stateful_kept_groups(name):
    """A script of groups that once told the stores apart does so no more."""
    with local_makers() as maker_of:
        run_groups_beside((KEPT_GROUPS | KEPT_HERE)[name], maker_of)
