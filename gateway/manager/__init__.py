"""Running jobs: from a claim to its end.

    manager     one dispatcher per upstream, and the drain     runner     one execution, from claim to outcome
    executions  what runs now; one renewal for all of it       outcomes   adapter answers and failures to records
    upstreams   adapters and capacities out of the config      document   a stored payload as an adapter reads it
    housekeeping  retention, reclaim, audit marks              settling   ends that must be written

Who owns what: an execution's claim, slot and connection belong to its runner, from the claim until `finish` or
`hand_back` has been answered. A runner that is cut before it could write gives the claim to `executions`, which
hands it back as soon as the store answers.
"""
