"""The embedded store: one process, SQLite for what lasts, in-process primitives for the rest.

coordination  the store as one object             jobs        the loop's side of the ledger
ledger        a batch in one transaction          operations  what the ledger can do, one subject a file
lanes         the ready queue                     tally       the ledger in figures
records       rows to records                     reading, figures   reads on a snapshot
blobs, payloads   stored bytes                    database    the file, its lock, its migrations
"""

from store.local.coordination import LocalStore as LocalStore
from store.local.coordination import open_local as open_local
