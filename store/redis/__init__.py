"""The shared store: what many replicas keep in one Redis (or Valkey), changed by one script for each transition.

coordination   the store as one object, and what runs in it
jobs           the ledger: admission, executions, reads, retention, all on a `desk`
slots, calls   leases of synchronous calls          payloads, chunks   bytes
sharing        the same while the store is away
chances        who may claim                        effects            what steps make known
steps          one script with its answer           records, keys      how things are written down
line, link, wire, connecting, fitness, clock, listener    the talking itself
lua/           the scripts, lua/lib/ what they share
"""

from store.redis.coordination import Place, RedisStore, open_redis

__all__ = ["Place", "RedisStore", "open_redis"]
