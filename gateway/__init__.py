"""The gateway itself: composition root, HTTP, job manager, audit, metrics, command line.

main       the composition root                          services   what handlers work with
config     the file, read strictly                       registry   which upstream serves what
http       the public job API, the admin bind            problems   every error a client can meet
manager    running jobs                                  drain, signals   taking no more work, and why
audit      the audit stream                              metrics, logs    what is counted, what is said
cli, demo  the commands                                  clock      the one reader of the wall clock

The only package that knows both `adapters` and `store`.
"""
