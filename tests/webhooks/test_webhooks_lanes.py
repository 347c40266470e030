"""Which letter is sent next: a receiver that is slow or silent delays its own letters alone."""

from hook_making import letter

from gateway.webhooks.lanes import (
    HELD,
    KNOWN,
    PATIENCE_S,
    PER_RECEIVER,
    PER_SILENT,
    PER_TENANT,
    SENDING,
    TENANT_HELD,
    Held,
    Lanes,
)


def held(receiver="https://a", tenant="acme", n=0, since=0.0):
    return Held(job_id=f"job-{n}", n=1, letter=letter(tenant=tenant), receiver=receiver, since=since)


def fill(lanes, number, **fields):
    """Put letters; how many were taken in hand."""
    return sum(lanes.put(held(n=n, **fields)) for n in range(number))


def started(lanes, now=0.0):
    return list(lanes.start(now))


def finish(lanes, sent, took_s=0.01, *, answered=True):
    for each in sent:
        lanes.ended(each, took_s, answered=answered)


def test_a_receiver_gets_a_few_at_a_time():
    """A receiver gets PER_RECEIVER letters at a time, in their order, and the next as one ends."""
    lanes = Lanes()
    fill(lanes, 20)
    first = started(lanes)
    assert [each.job_id for each in first] == [f"job-{n}" for n in range(PER_RECEIVER)]
    assert started(lanes) == []
    finish(lanes, first[:1])
    assert [each.job_id for each in started(lanes)] == [f"job-{PER_RECEIVER}"]


def test_receivers_take_turns():
    """Where many wait, each receiver's next one is sent in turn, whoever came first."""
    lanes = Lanes()
    for receiver in "abc":
        fill(lanes, 2, receiver=receiver)
    assert [each.receiver for each in started(lanes)] == ["a", "b", "c", "a", "b", "c"]


def test_turns_go_on_where_they_stopped():
    """Where a bound stopped the round, the receiver whose turn it is goes first when a place is free."""
    lanes = Lanes()
    for receiver in "abcde":
        fill(lanes, 8, receiver=receiver)
    sent = started(lanes)
    assert len(sent) == PER_TENANT
    finish(lanes, [each for each in sent if each.receiver == "a"][:1])
    expected = "abcde"[PER_TENANT % 5]
    assert [each.receiver for each in started(lanes)] == [expected]


def test_attempts_are_bounded():
    """There are at most SENDING attempts at a time, and PER_TENANT for one tenant."""
    lanes = Lanes()
    for number in range(20):
        fill(lanes, 8, receiver=f"r{number}")
    assert len(started(lanes)) == PER_TENANT
    others = {f"t{number}" for number in range(4)}
    for tenant in others:
        for number in range(10):
            fill(lanes, 8, receiver=f"r{number}", tenant=tenant)
    more = started(lanes)
    assert len(more) == SENDING - PER_TENANT
    assert {each.letter.tenant for each in more} == others


def test_a_silent_receiver_is_tried_by_few():
    """A receiver that gave no answer gets PER_SILENT letters at a time until it gives one, whatever it says."""
    lanes = Lanes()
    fill(lanes, 20)
    finish(lanes, started(lanes), 1.0, answered=False)
    few = started(lanes)
    assert len(few) == PER_SILENT
    finish(lanes, few, 0.1, answered=True)
    assert len(started(lanes)) == PER_RECEIVER


def test_a_silent_receiver_keeps_little_in_hand():
    """Of a receiver that takes its whole time only what can be sent in time stays in hand; the rest is let go."""
    lanes = Lanes()
    assert fill(lanes, 100) == 100
    first = started(lanes)
    finish(lanes, first, 15.0, answered=False)
    assert lanes.room >= HELD - 5
    while sent := started(lanes):
        finish(lanes, sent, 15.0, answered=False)
    assert 1 <= fill(lanes, 100) <= 5


def test_a_fast_receiver_may_fill_its_share():
    """A tenant whose receivers are fast has TENANT_HELD letters in hand, and no more; another tenant has its own."""
    lanes = Lanes()
    fill(lanes, 1)
    for _ in range(30):
        finish(lanes, started(lanes), 0.01)
        fill(lanes, 1)
    assert fill(lanes, 1000) == TENANT_HELD - 1
    assert fill(lanes, 10, tenant="other") == 10


def test_what_waited_too_long_is_let_go():
    """A letter is not sent when its time in hand is over: by then another replica may have been given it."""
    lanes = Lanes()
    fill(lanes, PER_RECEIVER)
    first = started(lanes)
    lanes.put(held(n=100, since=0.0))
    lanes.put(held(n=101, since=1.0))
    finish(lanes, first)
    assert [each.job_id for each in started(lanes, PATIENCE_S)] == ["job-101"]


def test_little_is_left_over():
    """When all is sent or let go, nothing is kept of tenants, and of receivers only what the last KNOWN were like (16)."""
    lanes = Lanes()
    fill(lanes, 3)
    fill(lanes, 3, tenant="other")
    finish(lanes, started(lanes), answered=False)
    fill(lanes, 2, tenant="late")
    assert started(lanes, PATIENCE_S) == []
    for number in range(KNOWN + 5):
        fill(lanes, 1, receiver=f"r{number}")
        finish(lanes, started(lanes))
    assert (lanes._lanes, lanes._held, lanes._sending) == ({}, {}, {})
    assert (len(lanes._idle), lanes.room) == (KNOWN, HELD)
    assert repr(lanes) == "<Lanes 0, 0 letters wait, 0 are sent>"
