"""Replicas under faults: whatever is killed, frozen, cut or restarted, every invariant holds from outside."""

import faulthandler
import os
import random
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from chaos.backing import LocalBacking
from chaos.backing_redis import RedisBacking
from chaos.forms import FORMS, Form, on_one_replica
from chaos.history import History
from chaos.oracle import faults_of
from chaos.plan import draw
from chaos.report import figures_of, line, machine, markdown
from chaos.run import run

pytestmark = pytest.mark.chaos

KEPT_SEED = 66610
"""Of the plan that `make test` carries out; `make chaos` draws new ones."""

RESULTS = Path(__file__).parents[2] / "bench" / "results"


@pytest.fixture
def seed() -> int:
    """`SLUICEGATE_CHAOS_SEED`, else a new one where a form was asked for; the tests of every change repeat one plan."""
    if given := os.environ.get("SLUICEGATE_CHAOS_SEED"):
        return int(given)
    return random.SystemRandom().randrange(1_000_000) if "SLUICEGATE_CHAOS_FORM" in os.environ else KEPT_SEED


@pytest.fixture
def form() -> Form:
    """`SLUICEGATE_CHAOS_FORM`, else the short one."""
    # A run has a limit of its own, which the bound of an ordinary test undercuts.
    faulthandler.cancel_dump_traceback_later()
    return FORMS[os.environ.get("SLUICEGATE_CHAOS_FORM", "short")]


async def test_chaos_on_one_replica(tmp_path, seed, form):
    """kill -9, freezes and drains of a single process: all invariants hold, seen from outside (GW-11 local, AT-17, AX-8)."""
    await carry_out(on_one_replica(form), seed, LocalBacking(tmp_path), tmp_path)


async def test_chaos_on_redis(tmp_path, seed, form):
    """Kills, freezes, cuts and restarts of Redis under several replicas: all invariants hold, seen from outside (GW-11, GW-4, AX-4, AX-8, AX-9)."""
    await carry_out(form, seed, RedisBacking(form.replicas, lossless=form.lossless), tmp_path)


async def carry_out(form, seed, backing, folder):
    plan = draw(seed, form)
    say(f"SLUICEGATE_CHAOS_SEED={seed} SLUICEGATE_CHAOS_FORM={form.name}", *plan.faults)
    history = History(
        seed=seed,
        slots={},
        visibility_s=form.visibility_s if backing.claims_last else 0.0,
        max_crashes=form.max_crashes,
        lossless=form.lossless or isinstance(backing, LocalBacking),
    )
    began = time.time()
    try:
        await run(form, plan, history, backing, folder)
    finally:
        (folder / "history.json").write_bytes(msgspec.json.encode(history))
    faults, figures = faults_of(history), figures_of(history)
    say(f"{line(figures, form)}, {time.time() - began:.1f} s", *faults)
    if form.kept:
        keep(markdown(figures, form, faults, machine()))
    assert not faults, f"seed {seed}: " + "\n".join(faults)


def say(*lines):
    """Words that a failed run shows, and a run by hand."""
    sys.stdout.write("\n".join(map(str, lines)) + "\n")


def keep(page):
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%MZ")
    (RESULTS / f"{stamp}-chaos.md").write_text(page)
