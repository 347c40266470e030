"""Benchmarks, run by hand: `make bench`. README.md says what each measures and what it checks.

__main__      the command          benchmarks/   one file each: what is run and which figures come of it
ours, peer    the two sides        peers/        what a team would build instead, in an environment of its own
processes     children             upstream      the stub that both sides call, a process of its own
server        a redis-server       claims        a process that only claims and finishes
client        load                 work          documents, answers and the check that a run is valid
figures       figures and goals    report        the table, and what is kept in results/
ledger        fills and reads our ledger         profile       where our time goes

Rules: every process is started and stopped here, on free loopback ports; a side lives only in its own turn; a run in
which anything went wrong has no figures.
"""
