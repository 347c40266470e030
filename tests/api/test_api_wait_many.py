"""POST /jobs/wait."""

import msgspec
import pytest
import trio
from api_world import PADDLE, content
from event_stream import nobody_watches
from msgspec.structs import replace

from gateway.http.message import Caller
from gateway.http.wait_many import wait_jobs
from store.errors import StoreUnavailable
from store.testing.making import again, claim_one, complete

NOW = {"timeout_ms": 0}


async def wait(world, ids, *, status=200, tenant="acme", **more):
    """What is answered."""
    body = msgspec.json.encode({"ids": ids, **more})
    reply = await world.act("wait_jobs", body=body, tenant=tenant)
    assert reply.status == status, content(reply)
    return content(reply)


def statuses(answer) -> list[str]:
    return [job["status"] for job in answer["data"]]


async def two_and_a_finisher(world, nursery, *, seconds=(1, 2)):
    """Two jobs, of which each is completed after so many seconds."""
    jobs = [await world.submitted() for _ in range(2)]
    claimed = [await claim_one(world.store, PADDLE) for _ in jobs]

    async def finish(n: int) -> None:
        await trio.sleep(seconds[n])
        await complete(world.store, claimed[n])

    for n in range(2):
        nursery.start_soon(finish, n)
    return [job.id for job in jobs]


async def test_all(world):
    """By default a wait is for all jobs: it ends with the last one, without time lost (AT-10)."""
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        ids = await two_and_a_finisher(world, nursery)
        answer = await wait(world, ids)
    assert (statuses(answer), answer["done"]) == (["completed"] * 2, True)
    assert trio.current_time() == began + 2
    assert nobody_watches(world)


async def test_any(world):
    """With mode any it ends with the first one, and shows the others as they are (AT-10)."""
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        ids = await two_and_a_finisher(world, nursery, seconds=(2, 1))
        third = (await world.submitted()).id
        answer = await wait(world, [*ids, third], mode="any")
        assert trio.current_time() == began + 1
    assert (statuses(answer), answer["done"]) == (["processing", "completed", "queued"], True)
    assert nobody_watches(world)


async def test_shown_as_they_are_at_the_end(world):
    """What is not done is shown as it is at the end of the wait, not as it was at its beginning."""
    ids = [(await world.submitted()).id for _ in range(2)]

    async def change() -> None:
        await trio.sleep(0.5)
        claimed = await claim_one(world.store, PADDLE)
        await world.store.jobs.requeue(claimed.job.id, claimed.token, again())
        await claim_one(world.store, PADDLE)
        await world.store.jobs.cancel(ids[1])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        answer = await wait(world, ids, timeout_ms=1000)
    assert (statuses(answer), answer["done"]) == (["processing", "cancelled"], False)


async def test_as_a_list_shows_them(world):
    """The jobs come in the order of the ids, one named twice twice, as lists show them: without results."""
    ids = [(await world.submitted()).id for _ in range(3)]
    await world.run_next()
    asked = [ids[2], ids[0], ids[1], ids[0]]
    answer = await wait(world, asked, **NOW)
    listed = {job["job_id"]: job for job in (await world.list())["data"]}
    assert answer["data"] == [listed[job_id] for job_id in asked]
    assert "result" not in answer["data"][1]


@pytest.mark.parametrize(
    ("budget", "seconds"), [({}, 30), (NOW, 0), ({"timeout_ms": 1500}, 1.5), ({"timeout_ms": 10**12}, 300)]
)
async def test_budget(world, budget, seconds):
    """A budget that runs out is 200 with the jobs as they are; 0 is a look at many, and long ones are cut (AT-10)."""
    job = await world.submitted()
    began = trio.current_time()
    answer = await wait(world, [job.id], **budget)
    assert (statuses(answer), answer["done"]) == (["queued"], False)
    assert trio.current_time() - began == pytest.approx(seconds)


async def test_finished_already(world):
    """When enough jobs are finished already the answer comes at once (AT-10)."""
    ids = [(await world.submitted()).id for _ in range(2)]
    await world.run_next()
    began = trio.current_time()
    assert (await wait(world, ids, mode="any"))["done"]
    await world.run_next()
    assert (await wait(world, ids))["done"]
    assert trio.current_time() == began


async def test_no_lost_wakeup(world):
    """A transition between the read and the wait is seen: the interleaving is forced (AT-11)."""
    job = await world.submitted()
    get, reads = world.store.jobs.get, []

    async def get_then_finish(job_id):
        record = await get(job_id)
        if not reads:
            reads.append(record.status)
            await world.run_next()
        return record

    world.store.jobs.get = get_then_finish
    began = trio.current_time()
    assert (await wait(world, [job.id]))["done"]
    assert trio.current_time() == began


async def test_unknown(world):
    """An id that is unknown, or another tenant's, is the same 404 with its pointer; nothing is waited for (GW-12)."""
    own = (await world.submitted()).id
    foreign = (await world.submitted(tenant="umbrella")).id
    refusals = []
    for job_id in ("job_none", foreign):
        answer = await wait(world, [own, own, job_id], status=404)
        assert (answer["code"], answer["errors"][0]["pointer"]) == ("JOB_UNKNOWN", "/ids/2")
        refusals.append(msgspec.json.encode(answer).replace(job_id.encode(), b"?"))
    assert refusals[0] == refusals[1]
    assert nobody_watches(world)


async def test_forgotten_meanwhile(world):
    """A job that is deleted meanwhile is waited for no longer, and shown as it was last."""
    ids = [(await world.submitted()).id for _ in range(2)]
    began = trio.current_time()

    async def delete() -> None:
        await trio.sleep(1)
        await world.store.jobs.delete(ids[0])
        await world.run_next()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete)
        answer = await wait(world, ids)
    assert (statuses(answer), answer["done"]) == (["queued", "completed"], False)
    assert trio.current_time() == began + 1


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"ids": []}', "/ids"),
        (msgspec.json.encode({"ids": ["job_1"] * 101}), "/ids"),
        (b'{"ids": [1]}', "/ids/0"),
        (b'{"ids": ["job_1"], "mode": "some"}', "/mode"),
        (b'{"ids": ["job_1"], "timeout_ms": -1}', "/timeout_ms"),
        (b'{"ids": ["job_1"], "timeout_ms": "5"}', "/timeout_ms"),
        (b'{"ids": ["job_1"], "timeout": 5}', None),
        (b'{"mode": "any"}', None),
        (b"[]", None),
        (b"", None),
        (b"[" * 300, None),
    ],
)
async def test_refused(world, body, pointer):
    """A body that is not what is expected is refused with the place of the fault."""
    reply = await world.act("wait_jobs", body=body)
    assert (reply.status, content(reply)["code"]) == (400, "INVALID_REQUEST")
    assert pointer is None or content(reply)["errors"][0]["pointer"] == pointer


async def test_worked_off(world):
    """When a drain has worked off, the answer is the jobs as they are."""
    ids = [(await world.submitted()).id for _ in range(2)]
    began = trio.current_time()

    async def drain() -> None:
        await trio.sleep(2)
        world.services.gate.close()
        world.services.gate.worked_off.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(drain)
        assert not (await wait(world, ids))["done"]
    assert trio.current_time() == began + 2


async def test_hanging_up(world):
    """A waiter that hangs up leaves no watch behind, and the jobs run on (AX-1)."""
    ids = [(await world.submitted()).id for _ in range(2)]
    with trio.move_on_after(1):
        await wait(world, ids)
    assert nobody_watches(world)
    await world.run_next()
    assert statuses(await wait(world, ids, **NOW)) == ["completed", "queued"]


async def test_store_away(world):
    """When the store gives no answer meanwhile, the wait ends at once with 503."""
    ids = [(await world.submitted()).id for _ in range(2)]

    async def away(_):
        await trio.lowlevel.checkpoint()
        raise StoreUnavailable("gone", outcome="not_done")

    async def change() -> None:
        await trio.sleep(1)
        world.store.jobs.get = away
        await claim_one(world.store, PADDLE)

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        assert (await wait(world, ids, status=503))["code"] == "STORE_UNAVAILABLE"
    assert trio.current_time() == began + 1
    assert (await wait(world, ids, status=503))["code"] == "STORE_UNAVAILABLE"
    assert nobody_watches(world)


async def test_operator(world):
    """An operator waits for any tenant's jobs, and each look is audited."""
    ids = [(await world.submitted(tenant=tenant)).id for tenant in ("acme", "umbrella")]
    request = world.request(msgspec.json.encode({"ids": ids, **NOW}))
    reply = await wait_jobs(world.services, replace(request, caller=Caller("ops", operator=True)))
    assert [job["tenant"] for job in content(reply)["data"]] == ["acme", "umbrella"]
    assert [(action.action, action.target) for action in world.refusals.actions] == [
        ("read", each) for each in ids
    ]
