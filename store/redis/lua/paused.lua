-- The upstreams that are paused.
-- KEYS: [1] meta
-- ARGV: [4] {}
-- Returns: their names
-- Atomicity: reads only.
-- needs: base
return reply(call('SMEMBERS', P .. 'paused'))
