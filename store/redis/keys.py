"""Every key of a store: its name, type, owner and end.

All keys of one store carry the hash tag of its prefix, so that they lie on one node; a script is given the first and
builds the others (`lua/lib`). `up` is an upstream, `cls` "i" (interactive) or "b" (batch), `kind` names lanes of jobs
(`lane act heads pass ahead`) or, the same way, of waiting calls (`waiters wact wheads wpass wahead`).

| key | type | holds | ends |
| --- | --- | --- | --- |
| `meta` | hash | schema, epoch, counters `seq` and `change`, bytes `stored` | never |
| `job:<id>` | hash | what scripts read or change, every value <= 64 bytes | with its job |
| `cold:<id>` | string | what was asked, msgpack | with its job |
| `end:<id>` | string | how it ended, msgpack | with its job |
| `trail:<id>` | list | its ended attempts, msgpack each, the last 20 | with its job |
| `state:<id>` | string | what an adapter resumes by | when the job ends |
| `lane:<up>:<cls>:<tenant>` | zset | ready jobs by (priority, seq) | when empty |
| `act:<up>:<cls>` | zset | lanes with work, by (priority of the head, pass, seq) | when empty |
| `heads:<up>:<cls>` | hash | tenant to its member of `act`, or P while parked | when empty |
| `pass:<up>:<cls>` | hash | passes of lanes with work; the present pass of each number | never (numbers x lanes) |
| `ahead:<up>:<cls>:<number>` | zset | passes of empty lanes that are above the present one | when passed |
| `parked`, `parked:<tenant>` | set | tenants with parked lanes; lanes parked because their tenant is at its bound | unparked |
| `delayed` | zset | jobs waiting for their time, ms | due |
| `holds` | zset | held jobs by the time of their hold, ms | resumed, ended |
| `followers:<id>` | set | jobs that wait for the end of this one | told |
| `ended` | set | jobs that have ended and whose followers have yet to be told | told |
| `voided`, `void` | zset, hash | claims ended under their execution, by expiry; where their slots are | given back, expired |
| `hook_due` | zset | jobs whose end is to be told, by when, ms | told, given up |
| `attempts:<id>`, `letter:<id>` | list, string | attempts to tell it; what the next one delivers | with its job or the last attempt |
| `paused` | set | upstreams that are paused | resumed |
| `served` | zset | upstreams by the expiry of the word that a replica serves them | expired |
| `bars`, `alarms` | hash, zset | endpoints that asked to be left alone; upstreams to be looked at again, ms | answered; looked at |
| `buckets` | hash | tokens of the upstreams that have a rate | never (upstreams) |
| `claimed` | zset | claims by expiry, ms | with the claim |
| `held:<replica>`, `unlisted:<replica>` | set | its claims; those its last complete renewal left out | with them; 1 h |
| `answers:<replica>` | hash | its last four claim answers, by number | 1 h after the last |
| `slots:<up>:<endpoint>` | zset | leases: `<job id>:<fence>` (+inf), `<replica>:<n>` by expiry | released, purged |
| `batch:<up>`, `busy:<tenant>` | zset | the batch ones of an upstream; a tenant's over all upstreams | with them |
| `callers` | set | tenants that calls hold leases for | no more |
| `alive:<up>` | zset | waiting calls by the expiry of their entry | served, gone |
| `rows` | hash | `<up>:<cls>` to calls served in a row | served a job |
| `caps` | hash | upstream to the capacities of the latest claim or acquire | never (upstreams) |
| `endpoints` | hash | short id of an endpoint to its URL | never (endpoints) |
| `waits:<replica>` | hash | upstream to the capacities that its waiting dispatcher came with | 1 min after the last |
| `idle:<up>` | zset | replicas whose dispatcher waits, by expiry | claimed, expired |
| `tenants` | hash | limits of the tenants that have their own, and of the others (`*`) | replaced |
| `tally`, `depth` | hash | jobs by tenant, upstream, class and state; unfinished jobs by tenant | at 0 |
| `means` | hash | upstream to the moving mean of its service time | never (upstreams) |
| `idem:<tenant>:<sha256 of key>` | string | job id | with the job's tombstone |
| `bytes:<id>`, `sharers:<id>` | string, set | a blob of up to 64 KiB; the jobs that name it, once it was shared (`*`: the first) | with its last job |
| `staging` | zset | groups to come, by when what was staged for them is dropped, ms | made, unstaged, dropped |
| `brought:<group>` | set | documents brought for it that no child has come to name | named; group made, staging dropped |
| `entries:<group>` | hash | children that are no records, by index: what they become, or whom they stand for | released; with the group |
| `unborn:<group>`, `window:<group>` | string | bitmaps by index: children that are no records; records that have not ended | with the group |
| `group:<group>` | hash | its terms, its children by status, how far passes over them are (`lua/lib/groups.lua`) | with the group |
| `unsettled` | set | groups of which something is left to do behind a step | done |
| `blob:<id>` | hash | a larger one: bytes by chunk, sizes, the jobs that name it | 1 h from birth; 5 min after its last reference |
| `docs:<tenant>` | zset | first bytes of a document's SHA-256 and the job that has it | with the job |
| `changes:<tenant>` | zset | job ids by change number | with its jobs |
| `jobs:<tenant>` | zset | jobs by (created_at, id), no children | with its jobs |
| `audit_due`, `finished` | zset | finished jobs by time: whose event is due, and the others | audited; evicted |
| `kept` | zset | finished jobs by time that retention takes with another, or not yet: children, groups held by another | with that |
| `expiring` | zset | the audited ones by `expires_at` | evicted |
| `tombs`, `tomb:<id>` | zset, hash | what is left of evicted jobs | `result_ttl_s` later |
| `replicas` | zset | replicas by the expiry of their word that they live | expired, left |
| `wake` | stream | wake-ups of replicas, the last 10,000 or so; nothing durable | never |
"""

from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Final

import msgspec

from store.policy import UpstreamSlots

_encode: Final = msgspec.msgpack.Encoder().encode


def tagged(prefix: str) -> str:
    """What every key of a store begins with."""
    return f"{{{prefix}}}:"


def meta(prefix: str) -> str:
    """KEYS[1] of every script."""
    return f"{tagged(prefix)}meta"


@lru_cache(maxsize=1024)
def short(url: str) -> str:
    """The id of an endpoint in keys and records: 12 hex digits of its URL's BLAKE2b."""
    return blake2b(url.encode(), digest_size=6).hexdigest()


def key_digest(idempotency_key: str) -> bytes:
    """Names an idempotency key: keys of clients stand in no key of Redis."""
    return sha256(idempotency_key.encode()).digest()


@lru_cache(maxsize=256)
def capacities(upstream: UpstreamSlots) -> bytes:
    """An upstream's capacities as scripts take them: [short, URL, slots offered now, slots] of each endpoint."""
    return _encode(
        {
            "endpoints": [
                [short(each.url), each.url, each.offered, each.slots] for each in upstream.endpoints
            ],
            "reserved": upstream.reserved_interactive,
            "rate": [upstream.rate.per_s, upstream.rate.burst] if upstream.rate is not None else None,
        }
    )
