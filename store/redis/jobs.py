"""The ledger as one replica sees it."""

from store.redis.admission import Admission
from store.redis.executions import Executions
from store.redis.groups import RedisGroups
from store.redis.outbox import Outbox
from store.redis.reads import Reads
from store.redis.retention import Retention


class RedisJobs(Admission, Executions, RedisGroups, Outbox, Reads, Retention):
    """The ledger (`store.api.JobStore`)."""
