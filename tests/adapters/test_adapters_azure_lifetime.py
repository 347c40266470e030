"""What the job keeps of an operation, what is continued, and what is deleted; on virtual time."""

import pytest
import trio
from azure_case import ACCEPTED, DONE, ENDPOINT, HANG, LOST, NOW_MS, PATH, RUNNING, Case, saved

from adapters.azure.operation import Operation
from adapters.base import Kind
from adapters.testing.azure_stub import RESULT
from adapters.testing.doubles import MemoryReport


@pytest.mark.parametrize("status", ["failed", "canceled"])
async def test_azure_failed_operation_is_forgotten(autojump_clock, status):
    """An operation that failed is not polled again by a later attempt (GW-8)."""
    case = Case(ACCEPTED, (200, {}, b'{"status":"%s"}' % status.encode()))
    await case.failure()
    assert case.report.saved == b""


async def test_azure_refused_poll_keeps_the_state(autojump_clock):
    """A refused key says nothing about the operation: a later attempt may continue it."""
    case = Case(ACCEPTED, (401, {}, b""))
    await case.failure()
    assert case.report.saved == saved(0)


async def test_azure_state_is_saved_before_the_first_poll(autojump_clock):
    """The operation's URL and submit time are saved as soon as they are known (GW-8)."""
    case = Case(ACCEPTED, HANG)
    with trio.move_on_after(0.25):
        await case.run()
    assert case.report.saved == saved(0)
    assert case.client.methods == ["POST"]


@pytest.mark.parametrize("age_s", [0, 5, 3600])
async def test_azure_resumed_operation_is_polled_at_once(autojump_clock, age_s):
    """A saved operation is continued: polled at once, nothing submitted, nothing saved again (GW-8)."""
    case = Case(RUNNING, DONE, resume=saved(age_s))
    outcome = await case.run()
    assert outcome.body == RESULT
    assert case.client.methods == ["GET", "GET"]
    assert case.client.times[0] == round(case.began, 3)
    assert case.call.document.opened == 0
    assert case.report.saved is None


async def test_azure_resumed_operation_that_is_gone_is_submitted_anew(autojump_clock):
    """A resumed operation that the service no longer knows is submitted anew within the attempt (GW-8)."""
    case = Case((404, {}, b""), ACCEPTED, DONE, resume=saved(11))
    outcome = await case.run()
    assert outcome.body == RESULT
    assert case.client.methods == ["GET", "POST", "GET"]
    assert case.report.saved == saved(0)


async def test_azure_resumed_operation_that_is_young_and_unknown_waits_first(autojump_clock):
    """The ten seconds count from the submit, over the restart."""
    case = Case(*[(404, {}, b"")] * 5, ACCEPTED, DONE, resume=saved(7))
    await case.run()
    assert case.client.methods == ["GET"] * 5 + ["POST", "GET"]
    times = case.client.times
    assert times[3] - times[0] < 3 <= times[4] - times[0]
    assert case.waits[-1] == 0.5, "the new operation has a pace of its own"


async def test_azure_resumed_operation_that_failed_is_a_failure(autojump_clock):
    """A resumed operation that failed ends the attempt and is forgotten: the next attempt submits anew (GW-8)."""
    case = Case((200, {}, b'{"status":"failed","error":{"code":"ServiceUnavailable"}}'), resume=saved(60))
    error = await case.failure()
    assert (error.kind, error.code) == (Kind.PROVIDER_5XX, "ServiceUnavailable")
    assert case.client.methods == ["GET"]
    assert case.report.saved == b""


@pytest.mark.parametrize("state", [b"", b"garbage", Operation(f"https://evil.example{PATH}", NOW_MS).saved()])
async def test_azure_state_that_may_not_be_polled_is_ignored(autojump_clock, state):
    """An unreadable state, and one that names another host, leads to a new submit; no poll leaves the endpoint (GW-3)."""
    case = Case(ACCEPTED, DONE, resume=state)
    await case.run()
    assert case.client.methods == ["POST", "GET"]
    assert {request.host for _, request in case.client.asked} == {"di.example"}


async def test_azure_deadline_deletes_the_operation(autojump_clock):
    """With delete_results an operation whose attempt timed out is deleted, in bounded time (GW-8)."""
    case = Case(ACCEPTED, *[RUNNING] * 4, HANG, deadline_s=20, delete_results=True)
    with trio.move_on_after(20) as scope:
        await case.run()
    assert scope.cancelled_caught
    assert case.client.methods == ["POST", "GET", "GET", "GET", "GET", "GET", "DELETE"]
    assert case.client.asked[-1][1].url == ENDPOINT + PATH
    assert trio.current_time() - case.began == pytest.approx(22), "a delete that hangs is given up"


@pytest.mark.parametrize(("cut_s", "deletes"), [(5, True), (30, False)])
async def test_azure_cut_before_the_deadline_or_unasked_deletes_nothing(autojump_clock, cut_s, deletes):
    """A call that was cut by something else is left to be continued; without delete_results nothing is deleted (GW-8)."""
    case = Case(ACCEPTED, RUNNING, deadline_s=20, delete_results=deletes)
    with trio.move_on_after(min(cut_s, 20)) as scope:
        await case.run()
    assert scope.cancelled_caught
    assert "DELETE" not in case.client.methods
    assert case.report.saved == saved(0)


@pytest.mark.parametrize("deleted", [(204, {}, b""), (404, {}, b""), (500, {}, b""), LOST, HANG], ids=str)
async def test_azure_success_deletes_whatever_comes_of_it(autojump_clock, deleted):
    """With delete_results the operation is deleted after its success, which no failure of that undoes (GW-8)."""
    case = Case(ACCEPTED, DONE, deleted, delete_results=True)
    outcome = await case.run()
    assert outcome.body == RESULT
    assert case.client.methods == ["POST", "GET", "DELETE"]


async def test_azure_result_survives_the_deadline_during_the_delete(autojump_clock):
    """A deadline that passes while the result is deleted does not lose the result."""
    case = Case(ACCEPTED, DONE, HANG, deadline_s=1, delete_results=True)
    with trio.move_on_after(1):
        outcome = await case.run()
    assert outcome.body == RESULT


async def test_azure_lost_claim_ends_the_call(autojump_clock):
    """When the state cannot be saved, the error of the report goes through (AX-9)."""

    class LostClaim(Exception):
        pass

    class Refusing(MemoryReport):
        async def save(self, state):
            await trio.lowlevel.checkpoint()
            raise LostClaim

    case = Case(ACCEPTED, DONE)
    case.report = Refusing()
    with pytest.raises(LostClaim):
        await case.run()
    assert case.client.methods == ["POST"]
