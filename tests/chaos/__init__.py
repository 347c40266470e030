"""Real replicas, real faults, and an oracle that looks at everything from outside.

    plan       what shall happen, drawn from a seed
    world      what runs: replicas, Redis and the way to it, upstream endpoints
    actors     carry the plan out
    load       submitters, pollers, waiters
    upstream   answers calls and notes each of them
    closing    the last look: API, admin side, metrics, audit files
    census     the last look: every key in Redis
    history    what all of them have seen
    oracle_*   the invariants, as functions of a history
    report     a run in one line, and as a table

`SLUICEGATE_CHAOS_SEED=<number>` repeats the plan and the load of a run; the interleaving is the machine's.
"""
