"""The audit stream: one event per finished job, synchronous call, refusal by policy and operator action.

event       what an event holds (schema v1), and how it is made
calls       the event of a synchronous call
redact      blanking fields of JSON bodies
bodies      loading and encoding what an event quotes of documents and results
emitter     the queue in front of all, its writer, and the clearing of jobs' marks
delivery    what stands between the writer and the sinks, put together:
  stream      the numbered lines: who has taken what, and what the spool must hold
  changes     waiting for it to change
  lane        the task of one sink
  keeper      the task of the spool
  drops       counting what is lost
spool       the spool's folder: segments and positions
records     how a line stands in the spool
sinks       the contract of where lines go; standard output
file_sink   the rotated file
chain       the hash chain of its lines, and how it is verified
http_sink   a receiver that takes batches by POST
reading     audit files and spools, read by people
configured  all of it from a configuration
"""

from gateway.audit.bodies import Bodies, BodyPolicy
from gateway.audit.calls import EndedCall, Quote
from gateway.audit.configured import open_emitter
from gateway.audit.delivery import Delivery
from gateway.audit.emitter import AuditEmitter
from gateway.audit.event import Action, Origin, Refusal
from gateway.audit.file_sink import FileSink
from gateway.audit.sinks import Sink, StdoutSink
from gateway.audit.spool import Spool, open_spool

__all__ = [
    "Action",
    "AuditEmitter",
    "Bodies",
    "BodyPolicy",
    "Delivery",
    "EndedCall",
    "FileSink",
    "Origin",
    "Quote",
    "Refusal",
    "Sink",
    "Spool",
    "StdoutSink",
    "open_emitter",
    "open_spool",
]
