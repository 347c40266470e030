"""The oracle itself: it accepts what faults may do, and objects to each thing that must not be."""

from dataclasses import replace

import pytest

from chaos.bad_histories import PLANTED, job_in, settle
from chaos.history import Answer, CallEnd, Kind, Trouble, Verb
from chaos.made_histories import URL, T, act, ask, at, event, good
from chaos.oracle import CHECKS, faults_of


def test_chaos_oracle_accepts_a_good_run():
    """A kill whose lost attempt explains the second call is no fault."""
    assert faults_of(good()) == []


def _acceptable_frozen(history):
    """A frozen replica's call goes on while the next holder of the job calls; the first one's answer is not taken."""
    history.troubles = [Trouble(Kind.FREEZE, "0.1", T + 0.8, T + 5.0)]
    history.calls[1] = replace(history.calls[1], ended=T + 4.3, end=CallEnd.ANSWERED)


def _acceptable_thawed(history):
    """A thawed replica sends what it had begun, just before it learns that its claim is lost."""
    history.troubles = [Trouble(Kind.FREEZE, "0.1", T + 0.62, T + 4.2)]
    history.calls[1] = replace(history.calls[1], began=T + 4.25, ended=T + 4.3)
    history.calls.sort(key=lambda call: call.began)


def _acceptable_unreached(history):
    """A claim whose holder never learnt of it is handed back without a call."""
    history.troubles = [Trouble(Kind.CUT, "0.1", T + 0.61, T + 0.61)]
    job = history.closing.jobs["job_b"]
    job["attempts"][0]["outcome"] = "handed_back"
    job["attempt"] = 1
    history.closing.events[1][1]["attempts"] = 1
    del history.calls[1]


def _acceptable_killed_before_the_call(history):
    """A replica dies between its claim and its call; the next attempt follows within milliseconds of the reclaim."""
    del history.calls[1]
    history.calls[1] = replace(history.calls[1], began=T + 4.101)
    history.closing.census.trails["job_b"] = ["r-0", "r-1"]


def _acceptable_unknown(history):
    """Unknown answers and refusals may come before a promise, and a job may come of an answer that got lost."""
    history.asks[:1] = [ask("a", 0.0, Answer.REFUSED), ask("a", 0.0, Answer.UNKNOWN)]


def _acceptable_second_delivery(history):
    """An event that was written but not yet ticked off comes again, from another replica, word for word."""
    again = event(history.closing.jobs["job_b"], 2, "r-1") | {"chain_n": 7}
    history.closing.events.append((0, again))


def _acceptable_owed(history):
    """An event that died with its replica is owed as long as its mark stands."""
    del history.closing.events[1]
    history.closing.census.audit_due = frozenset({"job_b"})


def _acceptable_put_off(history):
    """An end whose write Redis had put off behind a slow fsync dies with Redis: the job runs and ends again."""
    history.troubles.append(Trouble(Kind.REDIS_KILL, None, T + 4.6, T + 5))
    job = history.closing.jobs["job_b"]
    history.closing.events.insert(1, (0, event(job, 1, "r-0") | {"ts": at(4.5)}))
    history.asks.append(ask("gone", 4.5, Answer.ACCEPTED, "job_gone"))


def _acceptable_starved(history):
    """On a machine that has no time for anybody a renewal comes too late; that is nobody's fault."""
    history.troubles.clear()
    history.lags = [(T + 0.7, T + 1.3)]


def _acceptable_late_notice(history):
    """An aborted call that we noticed late, because this process had no turn, had ended when its lease did."""
    history.calls[1] = replace(history.calls[1], ended=T + 4.2)
    history.lags = [(T + 4.0, T + 4.19)]
    history.troubles = [Trouble(Kind.PARTITION, "0.1", T + 0.8, T + 5.0)]


def _acceptable_late_arrival(history):
    """A call that we noticed late, because this process had no turn, had arrived before its execution was given up."""
    job = history.closing.jobs["job_b"]
    job["attempts"][0].update(outcome="handed_back", finished_at=at(0.9))
    job["attempt"] = 1
    history.closing.events[1][1]["attempts"] = 1
    history.calls[1] = replace(history.calls[1], began=T + 1.1, ended=T + 1.1)
    history.lags = [(T + 0.8, T + 0.95), (T + 0.97, T + 1.08)]
    history.troubles = [Trouble(Kind.DRAIN, "0.1", T + 0.7, T + 1.2)]


def _acceptable_frozen_connect(history):
    """A connect that a freeze has outlasted fails as it goes on, and nobody was called."""
    job_in(history, "d")["attempts"][0]["error_kind"] = "connect"
    del history.calls[4]
    history.troubles.append(Trouble(Kind.FREEZE, "1.1", T + 5.42, T + 5.55))


def _acceptable_late_pause(history):
    """A pause that a frozen replica carries out when its client has long gone on holds for good: the harness ends it."""
    history.acts.append(act(Verb.PAUSE, "job_f", 12.72, None, None))
    history.acts.append(replace(act(Verb.RESUME, "job_f", 13.05, 200, "queued"), at_last=True))


def _acceptable_cancelled_between(history):
    """A job that waits for its next attempt is cancelled without an execution."""
    job = job_in(history, "d")
    job["attempts"].pop()
    job.update(status="cancelled", superseded_from=None, superseded_by=None, attempt=1)
    job.update(error_code="CANCELLED", error_kind="cancelled", finished_at=at(6.0))
    del history.closing.jobs["job_e"], history.closing.listed["job_e"], history.closing.again["job_e"]
    del history.calls[5:8], history.closing.events[3:5]
    history.closing.events.append((1, event(job, 1, "r-1")))
    history.acts[1] = act(Verb.CANCEL, "job_d", 5.99, 200, "cancelled")
    history.closing.terminal -= 1
    settle(history, job)


def _acceptable_second_repeat(history):
    """Whoever repeats a job that was repeated already is told by which."""
    history.acts.append(replace(act(Verb.RETRY, "job_d", 11.5, 409, "JOB_STATE_CONFLICT"), names="job_e"))


def _acceptable_failed_dependency(history):
    """A job fails with the one that it follows, without an execution."""
    job = job_in(history, "f")
    job.update(status="failed", error_code="DEPENDENCY_FAILED", result=None, attempts=[], attempt=0)
    history.asks[-1] = replace(history.asks[-1], follows=("job_d",))
    del history.calls[8]
    history.closing.events[5] = (1, event(job, 0, "r-1"))
    settle(history, job)


def _acceptable_held_follower(history):
    """A held job cannot fail: with the one that it follows it is cancelled."""
    _acceptable_failed_dependency(history)
    job = job_in(history, "f")
    job.update(status="cancelled", error_code="CANCELLED")
    history.closing.events[5] = (1, event(job, 0, "r-1"))
    settle(history, job)


def _acceptable_bar(history):
    """A bar stands until its endpoint has served somebody."""
    history.closing.census.bars[URL] = T + 13.2


def _acceptable_two_writers(history):
    """The event of a job that never ran names whoever writes it."""
    _acceptable_failed_dependency(history)
    history.closing.events.append((0, event(job_in(history, "f"), 0, "r-0")))


@pytest.mark.parametrize(
    "change",
    [value for name, value in globals().items() if name.startswith("_acceptable")],
    ids=lambda change: change.__name__.removeprefix("_acceptable_"),
)
def test_chaos_oracle_accepts(change):
    """What a fault may do is no fault of the product."""
    history = good()
    change(history)
    assert faults_of(history) == []


CASES = [(name, change) for name, changes in PLANTED.items() for change in changes]


@pytest.mark.parametrize(("name", "change"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_chaos_oracle_objects(name, change):
    """What must not be is found, by the check that is there for it."""
    history = good()
    change(history)
    assert any(fault.startswith(f"{name}: ") for fault in faults_of(history)), faults_of(history)


def test_chaos_oracle_has_no_check_that_cannot_fail():
    """Every check has been seen to object."""
    assert {check.__name__ for check in CHECKS} == set(PLANTED)
