"""The synchronous LLM proxy: OpenAI's routes, on the slots that jobs have too.

asked       what a call's body says to the gateway, and what of it is changed
targets     the upstreams that are called: connections, keys, health
line        waiting for a slot
call        one call, from its slot to its audit event
relay       an upstream's answer, passed on as it comes
ending      how a call ended, for the audit event and the figures
errors      how errors are told on these routes
routes      the handlers
"""
