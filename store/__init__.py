"""What replicas share: ledger, payloads, slots, events.

    job       the record and its state machine         errors    what a store refuses, how it fails
    transitions  what a step makes of a record         policy    what a store is told: bounds, capacities
    api       the contract of a store                  values    what goes into its calls and comes out
    batching  one thread that does what waits together slots, events   primitives of one process
    ulid      ids of jobs and replicas
    testing   the contract as a suite, and a model     local     SQLite and in-process primitives, one process

Imports nothing of `gateway` or `adapters`; knows records and leases, never HTTP or upstream protocols.
"""
