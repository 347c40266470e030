"""Contract: fair share between the tenants of one priority number, by stride scheduling (AX-3).

Each order below follows from the rule: the lane with the lowest (pass, seq of its head) goes, a claim adds
1,000,000 / weight to its pass, a lane that gains its first job starts at the present pass or its own if higher.
"""

from store.api import Coordination
from store.policy import StorePolicy, TenantLimits
from store.testing.harness import Maker, case
from store.testing.making import again, claim_one, complete, crowd, drain_claims, limits, pool, submit

CROWD = 1_000
"""Enough jobs that an order by arrival would show."""


async def order(store: Coordination, claims: int) -> str:
    """The tenants of the next claims, one letter each."""
    tenants = ""
    for _ in range(claims):
        claimed = await claim_one(store)
        tenants += claimed.job.tenant
        await complete(store, claimed)
    return tenants


@case
async def case_equal_weights_take_turns(make: Maker) -> None:
    """Three tenants of equal weight run in turn, each turn by arrival, whoever came first with how many (AX-3)."""
    async with make(StorePolicy()) as harness:
        for tenant in "aaaabbbbcc":
            await submit(harness.store, tenant=tenant)
        assert await order(harness.store, 10) == "abcabcabab"


@case
async def case_weights_share_in_proportion(make: Maker) -> None:
    """Weights 3 to 1 give 3 claims to 1, to the claim (AX-3).

    The stride of weight 3 rounds to 333,333, so after three claims that lane is still one unit ahead.
    """
    tenants = limits(a=TenantLimits(weight=3))
    async with make(StorePolicy(tenants=tenants)) as harness:
        store = harness.store
        for tenant in "a" * 12 + "b" * 4:
            await submit(store, tenant=tenant)
        assert await order(store, 16) == "abaaa" + "baaa" + "baaa" + "baa"


@case
async def case_weight_below_one(make: Maker) -> None:
    """A tenant of weight 0.5 gets one claim where one of weight 1 gets two (AX-3)."""
    tenants = limits(a=TenantLimits(weight=0.5))
    async with make(StorePolicy(tenants=tenants)) as harness:
        store = harness.store
        for tenant in "aaabbbbbb":
            await submit(store, tenant=tenant)
        assert await order(store, 9) == "abbabbabb"


@case
async def case_new_weights_hold_from_the_next_claim(make: Maker) -> None:
    """set_tenants changes the share from the next claim on."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for tenant in "aaaaaaaabbbb":
            await submit(store, tenant=tenant)
        assert await order(store, 4) == "abab"
        store.set_tenants(limits(a=TenantLimits(weight=3)))
        assert await order(store, 8) == "abaaabaa"


@case
async def case_crowd_delays_a_neighbour_by_one(make: Maker) -> None:
    """However many jobs a tenant has queued, another's next job waits for at most one of them (AX-3)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await crowd(store, CROWD, tenant="a")
        assert await order(store, 3) == "aaa"
        await submit(store, tenant="b")
        assert "b" in await order(store, 2)


@case
async def case_delayed_jobs_cost_nothing(make: Maker) -> None:
    """Jobs that wait for their time neither run nor move a pass: their tenant's next job is not behind (AX-3)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await crowd(store, CROWD, tenant="a", run_at=harness.clock() + 3_600_000)
        for tenant in "bbaa":
            await submit(store, tenant=tenant)
        assert await order(store, 4) == "baba"


@case
async def case_jobs_of_another_number_cost_nothing(make: Maker) -> None:
    """A lane has a pass for each number: claims of one number do not count against another (AX-3)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for _ in range(5):
            await submit(store, tenant="a", priority=49)
        await drain_claims(store)
        for tenant in "abab":
            await submit(store, tenant=tenant)
        assert await order(store, 4) == "abab"


@case
async def case_other_upstreams_cost_nothing(make: Maker) -> None:
    """A lane belongs to an upstream: claims of another do not count against it (AX-3)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for _ in range(5):
            await submit(store, tenant="a", upstream="other")
        await drain_claims(store, pool(name="other"))
        for tenant in "abab":
            await submit(store, tenant=tenant)
        assert await order(store, 4) == "abab"


@case
async def case_idleness_saves_nothing(make: Maker) -> None:
    """A tenant that was idle while another ran starts at the present pass: no run of claims to catch up (AX-3)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for _ in range(12):
            await submit(store, tenant="a")
        assert await order(store, 8) == "a" * 8
        for _ in range(4):
            await submit(store, tenant="b")
        assert await order(store, 8) == "babababa"


@case
async def case_emptying_a_lane_forgives_nothing(make: Maker) -> None:
    """A lane that ran empty and returns keeps its own pass while that is above the present (AX-3)."""
    async with make(StorePolicy(tenants=limits(a=TenantLimits(weight=0.25)))) as harness:
        store = harness.store
        for tenant in "abbbbbb":
            await submit(store, tenant=tenant)
        assert await order(store, 2) == "ab"
        await submit(store, tenant="a")
        assert await order(store, 6) == "bbbbab"


@case
async def case_returning_job_is_charged_again(make: Maker) -> None:
    """Each claim moves the pass, also one whose job was handed back or requeued; returning itself does not."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for tenant in "abbb":
            await submit(store, tenant=tenant)
        first = await claim_one(store)
        assert first.job.tenant == "a"
        await store.jobs.hand_back(first.job.id, first.token)
        assert await order(store, 1) == "b"
        second = await claim_one(store)
        assert second.job.tenant == "a"
        await store.jobs.requeue(second.job.id, second.token, again())
        assert await order(store, 3) == "bab"
