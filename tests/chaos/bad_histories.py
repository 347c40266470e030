"""Histories in which one thing must not be: each a good one with a change, by what the oracle says of it."""

from dataclasses import replace

from chaos.history import UPSTREAM, Answer, Call, CallEnd, Kind, Trouble, Verb, outcome_of
from chaos.made_histories import URL, T, act, ask, at, event, look


def job_in(history, key):
    return history.closing.jobs[f"job_{key}"]


def settle(history, job):
    """Everybody sees a job as it is now."""
    history.closing.again[job["job_id"]] = outcome_of(job)
    history.closing.listed[job["job_id"]] = dict(job)


def _job_b(history):
    return history.closing.jobs["job_b"]


def _missing(history):
    del history.closing.jobs["job_b"]


def _two_jobs(history):
    twin = history.closing.jobs["job_a"] | {"job_id": "job_twin"}
    history.closing.jobs["job_twin"] = twin


def _two_promises(history):
    history.asks.append(ask("a", 0.3, Answer.ACCEPTED, "job_twin"))


def _refused_and_made(history):
    history.asks[0] = ask("a", 0.0, Answer.REFUSED)


def _unfinished(history):
    _job_b(history).update(status="processing", done=False)


def _listed_otherwise(history):
    history.closing.listed["job_b"]["status"] = "queued"


def _ended_twice(history):
    _job_b(history)["attempts"][0]["outcome"] = "completed"


def _lost_for_good(history):
    _job_b(history)["attempts"].pop()


def _changed_in_sight(history):
    history.looks.append(look("job_a", 0.7, jobs=None))


def _changed_in_the_end(history):
    history.closing.again["job_a"] = ("failed",)


def _gone_in_sight(history):
    history.looks.append(look("job_a", 0.7, jobs=None, http_status=404))


def _unknown_to_another(history):
    history.looks.append(look("job_a", 0.2, jobs=None, http_status=404))


def _other_bytes(history):
    history.calls[0].intact = False


def _call_without_job(history):
    history.calls.append(Call(4, "z", "0.2", URL, T + 5, T + 5.1, CallEnd.ANSWERED))


def _call_without_attempt(history):
    history.calls.insert(1, Call(4, "a", "1.1", URL, T + 0.5, T + 0.52, CallEnd.ANSWERED))


def _call_out_of_time(history):
    history.calls[1] = replace(history.calls[1], began=T + 4.7, ended=T + 4.8)


def _lost_without_fault(history):
    history.troubles.clear()


def _lost_by_the_other(history):
    history.troubles[0].life = "1.1"


def _result_of_another(history):
    _job_b(history)["result"] = {"call": 1, "key": "a"}


def _result_of_the_dead(history):
    history.closing.events[1][1]["replica"] = "r-0"


def _failed_by_us(history):
    _job_b(history).update(status="failed", error_code="INTERNAL", problem={"code": "INTERNAL"})


def _too_many_calls(history):
    history.calls[0] = replace(history.calls[0], ended=T + 0.7)


def _too_many_on_a_cut(history):
    """A replica that is cut off must stop its calls before their slots are lent: no excuse."""
    history.troubles = [Trouble(Kind.PARTITION, "0.1", T + 0.8, T + 5.0)]
    history.calls[1] = replace(history.calls[1], ended=T + 4.3)


def _no_event(history):
    del history.closing.events[1]


def _two_events(history):
    history.closing.events.append((0, event(_job_b(history), 1, "r-0")))


def _twice_in_a_file(history):
    history.closing.events.append(history.closing.events[1])


def _other_words(history):
    history.closing.events.append((0, event(_job_b(history), 2, "r-0")))


def _event_says_otherwise(history):
    history.closing.events[1][1]["attempts"] = 1


def _event_of_nobody(history):
    stranger = history.closing.jobs["job_a"] | {"job_id": "job_z"}
    history.closing.events.append((0, event(stranger, 1, "r-0")))


def _overdue(history):
    history.closing.overdue = "1 jobs still unfinished"


def _slot_held(history):
    history.closing.in_use["0.2 slots of ocr"] = 1


def _claim_held(history):
    history.closing.census.held["claimed"] = 1


def _key_without_job(history):
    history.closing.census.owners["job:job_z"] = "job_z"


def _loose_key(history):
    history.closing.census.loose.append("blob:1")


def _unknown_key(history):
    history.closing.census.unknown.append("what")


def _key_not_indexed(history):
    history.closing.census.keys.pop("b")


def _counted_otherwise(history):
    history.closing.terminal = 3


def _gauge_stands(history):
    history.closing.gauges["1.1 gateway_slots_in_use"] = 1.0


def _counted_twice(history):
    history.closing.gauges["0.2 gateway_jobs_total"] = 3.0


def _crashed(history):
    history.crashes.append("replica 0.2 ended by itself")


def _drain_failed(history):
    history.closing.exits["1.1"] = 1


def _reload_refused(history):
    history.refused_reloads.append("0.2: no")


def _lost_to_a_nap(history):
    history.troubles = [Trouble(Kind.NAP, "0.1", T + 0.8, T + 2.0), Trouble(Kind.RELOAD, "0.1", T + 1, T + 1)]


def _start_failed(history):
    history.failed_starts.append((T + 2, "0.2: no"))


def _odd_answer(history):
    history.oddities.append("500")


def _wrong_answer(history):
    history.asks.append(ask("a", 0.3, Answer.WRONG))


def _cancelled_by_nobody(history):
    del history.acts[0]


def _cancelled_and_completed(history):
    history.acts.append(act(Verb.CANCEL, "job_a", 0.3, 200, "cancelled"))


def _late_result(history):
    job_in(history, "c")["result"] = {"call": 4, "key": "c"}


def _repeated_twice(history):
    history.closing.jobs["job_h"] = job_in(history, "e") | {"job_id": "job_h"}


def _repeated_by_nobody(history):
    del history.closing.jobs["job_e"]


def _repeats_what_stands(history):
    job_in(history, "d").update(status="failed", superseded_from=None, superseded_by=None)


def _repeated_by_another(history):
    history.acts.append(replace(act(Verb.RETRY, "job_d", 11.5, 409, "JOB_STATE_CONFLICT"), names="job_h"))


def _ran_while_held(history):
    job_in(history, "f")["attempts"][0]["started_at"] = at(12.9)


def _ran_while_upstream_paused(history):
    history.acts[4] = act(Verb.PAUSE, UPSTREAM, 12.3, 200, None)


def _upstream_paused_for_good(history):
    history.acts.append(replace(act(Verb.RESUME, UPSTREAM, 13.05, 200, None), at_last=True))


def _held_for_good(history):
    history.acts.append(replace(act(Verb.RESUME, "job_f", 13.05, 200, "queued"), at_last=True))


def _deleted_and_there(history):
    history.closing.jobs["job_g"] = job_in(history, "a") | {"job_id": "job_g", "trace_id": "g"}


def _deleted_and_shown(history):
    history.looks.append(look("job_g", 13.7, jobs=history.closing.jobs | {"job_g": job_in(history, "a")}))


def _deleted_without_event(history):
    del history.closing.events[6]


def _odd_cancel(history):
    history.acts.append(act(Verb.CANCEL, "job_a", 0.6, 409, "JOB_STATE_CONFLICT"))


def _unknown_to_its_client(history):
    history.acts.append(act(Verb.CANCEL, "job_a", 0.6, 404, "JOB_UNKNOWN"))


def _odd_pause(history):
    history.acts.append(act(Verb.PAUSE, UPSTREAM, 0.6, 404, "UPSTREAM_UNKNOWN"))


def _followed_a_failure(history):
    history.asks[-1] = replace(history.asks[-1], follows=("job_d",))


def _failed_with_a_success(history):
    job_in(history, "f").update(status="failed", error_code="DEPENDENCY_FAILED")


def _did_not_wait_for_it(history):
    history.asks[-1] = replace(history.asks[-1], follows=("job_e",))
    job_in(history, "f")["attempts"][0]["started_at"] = at(12.5)


def _too_early(history):
    history.asks[-1] = replace(history.asks[-1], not_before=T + 13.15)


def _failed_by_nobody(history):
    history.calls[4].end = CallEnd.ANSWERED


def _failed_as_another(history):
    job_in(history, "d")["attempts"][0]["error_kind"] = "connect"


def _never_connected(history):
    _failed_as_another(history)
    del history.calls[4]


def _rate_limit_counted(history):
    job_in(history, "e")["attempt"] = 2


def _tried_too_often(history):
    job_in(history, "d")["max_attempts"] = 1


def _given_up_too_soon(history):
    job_in(history, "d")["max_attempts"] = 3


def _no_backoff(history):
    job_in(history, "d")["attempts"][1]["started_at"] = at(10.5)


def _begun_while_barred(history):
    history.calls[7] = replace(history.calls[7], began=T + 12.22)
    job_in(history, "e")["attempts"][1]["started_at"] = at(12.2)


def _bar_stands(history):
    history.closing.census.bars[URL] = T + 12.3


def _lost_too_soon(history):
    _job_b(history)["attempts"][0]["finished_at"] = at(3.0)


PLANTED = {
    "nothing_accepted_is_missing": [_missing],
    "one_job_for_each_key": [_two_jobs, _two_promises],
    "a_refusal_makes_nothing": [_refused_and_made],
    "every_job_ends": [_unfinished, _listed_otherwise],
    "a_job_ends_once": [_ended_twice, _lost_for_good],
    "an_end_never_changes": [_changed_in_sight, _changed_in_the_end, _gone_in_sight],
    "what_is_accepted_is_found": [_unknown_to_another],
    "documents_arrive_as_sent": [_other_bytes],
    "calls_are_of_jobs": [_call_without_job],
    "every_call_has_its_attempt": [_call_without_attempt, _call_out_of_time],
    "lost_attempts_have_a_cause": [_lost_without_fault, _lost_by_the_other, _lost_to_a_nap],
    "results_come_from_their_calls": [_result_of_another, _result_of_the_dead],
    "no_other_ends": [_failed_by_us],
    "slots_are_never_exceeded": [_too_many_calls, _too_many_on_a_cut],
    "cancellations_hold": [_cancelled_by_nobody, _cancelled_and_completed],
    "late_results_are_dropped": [_late_result],
    "a_job_is_repeated_once": [
        _repeated_twice,
        _repeated_by_nobody,
        _repeats_what_stands,
        _repeated_by_another,
    ],
    "what_is_held_rests": [_ran_while_held],
    "a_paused_upstream_rests": [_ran_while_upstream_paused],
    "holds_are_lifted": [_held_for_good, _upstream_paused_for_good],
    "what_is_deleted_is_gone": [_deleted_and_there, _deleted_and_shown],
    "acts_are_answered_decently": [_odd_cancel, _unknown_to_its_client, _odd_pause],
    "who_follows_waits": [_followed_a_failure, _failed_with_a_success, _did_not_wait_for_it],
    "nobody_begins_early": [_too_early],
    "attempts_say_what_their_calls_did": [_failed_by_nobody, _failed_as_another, _never_connected],
    "attempts_are_counted": [_rate_limit_counted, _tried_too_often, _given_up_too_soon],
    "backoffs_are_kept": [_no_backoff],
    "bars_are_kept": [_begun_while_barred],
    "bars_are_lifted": [_bar_stands],
    "claims_last": [_lost_too_soon],
    "every_job_has_its_event": [_no_event, _deleted_without_event],
    "one_event_for_each_job": [_two_events, _twice_in_a_file, _other_words],
    "events_say_what_happened": [_event_says_otherwise, _event_of_nobody],
    "everything_settles": [_overdue],
    "nothing_is_held": [_slot_held, _claim_held],
    "no_key_is_left_over": [_key_without_job, _loose_key, _unknown_key, _key_not_indexed],
    "figures_agree": [_counted_otherwise, _gauge_stands, _counted_twice],
    "processes_behave": [_crashed, _drain_failed, _start_failed, _reload_refused],
    "answers_are_decent": [_odd_answer, _wrong_answer],
}
"""Each check, and what it must object to."""
