"""What is said about a store that gives no answer: little, and enough."""

import trio
from structlog.testing import capture_logs

from gateway.metrics import Metrics
from gateway.metrics.store import StoreFigures
from gateway.outage import Outage
from store.errors import StoreUnavailable

AWAY = StoreUnavailable("connection refused", outcome="not_done")


async def test_outage_is_said_once_a_minute(autojump_clock) -> None:
    """However many notice, one line a minute says what was being done, why it failed, how often and for how long."""
    outage = Outage()
    with capture_logs() as logs:
        for _ in range(150):
            outage.failed("claiming jobs", AWAY)
            outage.failed("renewing claims", AWAY)
            await trio.sleep(1)
    assert [(line["log_level"], line["event"], line["failures"], line["for_s"]) for line in logs] == [
        ("warning", "store trouble", 1, 0.0),
        ("warning", "store trouble", 120, 60.0),
        ("warning", "store trouble", 120, 120.0),
    ]
    assert {(line["doing"], line["reason"]) for line in logs} == {("claiming jobs", "connection refused")}


async def test_outage_end_is_said_once(autojump_clock) -> None:
    """The first answer after trouble is said, with how long it took; later ones, and those without trouble, are not."""
    outage = Outage()
    with capture_logs() as logs:
        outage.answered()
        outage.failed("claiming jobs", AWAY)
        await trio.sleep(7)
        outage.answered()
        outage.answered()
    assert [line["event"] for line in logs] == ["store trouble", "store works again"]
    assert logs[-1]["after_s"] == 7.0


async def test_outage_that_comes_and_goes_is_said_once_a_minute(autojump_clock) -> None:
    """A store that fails every other call is two lines a minute, not two a call."""
    outage = Outage()
    with capture_logs() as logs:
        for _ in range(170):
            outage.failed("claiming jobs", AWAY)
            outage.answered()
            await trio.sleep(1)
    assert [line["event"] for line in logs] == ["store trouble", "store works again"] * 3


def test_store_figures_count_what_shared_stores_do() -> None:
    """A store that went back, and a lease that was left to its expiry, are counted (60)."""
    metrics = Metrics()
    figures = StoreFigures(metrics)
    figures.rolled_back()
    figures.lease_left()
    figures.lease_left()
    text = metrics.exposition()[0].decode()
    assert "gateway_store_rolled_back_total 1.0" in text
    assert "gateway_lease_release_failures_total 2.0" in text
