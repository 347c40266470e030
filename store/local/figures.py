"""The ledger in figures, out of the tally: the cost does not depend on how many jobs there are."""

from collections import Counter, defaultdict

from store.job import TERMINAL, PriorityClass, Status
from store.local.reading import Reading
from store.local.tally import DELAYED, UNFINISHED, Cell, Sums
from store.values import Backlog, Counts, TenantLoad


def counts(read: Reading) -> Counts:
    """Everything the admin routes and the gauges show."""
    cells = {
        (row["tenant"], row["upstream"], row["class"], row["state"]): Sums(
            row["jobs"], row["wait_ms"], row["run_ms"]
        )
        for row in read.connection.execute("SELECT * FROM tally")
    }
    by_state: Counter[str] = Counter()
    for (_, _, _, state), sums in cells.items():
        by_state[state] += sums.jobs
    by_status = {status: by_state[status] for status in Status}
    by_status[Status.QUEUED] += by_state[DELAYED]
    meta = dict(read.connection.execute("SELECT key, value FROM meta").fetchall())
    (due,) = read.connection.execute("SELECT count(*) FROM job WHERE audit_due = 1").fetchone()
    return Counts(
        by_status=by_status,
        delayed=by_state[DELAYED],
        depth=sum(by_state[state] for state in UNFINISHED),
        stored_bytes=int(meta.get("stored_bytes", 0)),
        audit_due=due,
        backlogs=_backlogs(cells, _oldest(read)),
        tenants=_tenants(cells),
        mean_service_ms=dict(read.connection.execute("SELECT upstream, mean_ms FROM service").fetchall()),
        now=read.now,
    )


def _oldest(read: Reading) -> dict[tuple[str, str], int]:
    """When the oldest ready job of each upstream and class was created: the lowest head of its lanes."""
    rows = read.connection.execute(
        "SELECT heads.upstream, heads.class, job.created_at FROM"
        " (SELECT upstream, class, min(head) AS seq FROM lane WHERE head IS NOT NULL GROUP BY upstream, class)"
        " AS heads JOIN job USING (seq)"
    ).fetchall()
    return {(upstream, cls): created_at for upstream, cls, created_at in rows}


def _backlogs(cells: dict[Cell, Sums], oldest: dict[tuple[str, str], int]) -> tuple[Backlog, ...]:
    grouped: defaultdict[tuple[str, str], defaultdict[str, Sums]] = defaultdict(lambda: defaultdict(Sums))
    for (_, upstream, cls, state), sums in cells.items():
        if upstream:  # the parents of groups have none
            _add(grouped[upstream, cls][state], sums)
    return tuple(
        Backlog(
            upstream=upstream,
            priority_class=PriorityClass(cls),
            queued=states[Status.QUEUED].jobs + states[DELAYED].jobs,
            processing=states[Status.PROCESSING].jobs,
            delayed=states[DELAYED].jobs,
            oldest_queued_at=oldest.get((upstream, cls)),
            mean_wait_ms=_mean(states, "wait_ms"),
            mean_run_ms=_mean(states, "run_ms"),
        )
        for (upstream, cls), states in sorted(grouped.items())
    )


def _tenants(cells: dict[Cell, Sums]) -> tuple[TenantLoad, ...]:
    grouped: defaultdict[str, defaultdict[str, Sums]] = defaultdict(lambda: defaultdict(Sums))
    for (tenant, _, _, state), sums in cells.items():
        _add(grouped[tenant][state], sums)
    return tuple(
        TenantLoad(
            tenant=tenant,
            queued=states[Status.QUEUED].jobs + states[DELAYED].jobs,
            processing=states[Status.PROCESSING].jobs,
            finished=sum(states[status].jobs for status in TERMINAL),
            failed=states[Status.FAILED].jobs,
            mean_wait_ms=_mean(states, "wait_ms"),
            mean_run_ms=_mean(states, "run_ms"),
        )
        for tenant, states in sorted(grouped.items())
    )


def _add(total: Sums, sums: Sums) -> None:
    total.jobs += sums.jobs
    total.wait_ms += sums.wait_ms
    total.run_ms += sums.run_ms


def _mean(states: defaultdict[str, Sums], figure: str) -> float | None:
    """Mean over the finished jobs still kept."""
    jobs = sum(states[status].jobs for status in TERMINAL)
    if not jobs:
        return None
    total: int = sum(getattr(states[status], figure) for status in TERMINAL)
    return total / jobs
