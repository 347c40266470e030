"""What the gateway counts, and the text a scrape gets.

family      how a metric is declared once and made per object
catalogue   every metric: name, labels, meaning
observe     gauges that mirror the ledger, set at scrape time
store       figures of the store's threads
loop_lag    the service that watches the event loop
"""

from gateway.metrics.catalogue import Metrics
from gateway.metrics.loop_lag import watch_loop_lag
from gateway.metrics.observe import Reading, observe

__all__ = ["Metrics", "Reading", "observe", "watch_loop_lag"]
