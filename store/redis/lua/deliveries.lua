-- The attempts made to deliver the word of a job, oldest first.
-- KEYS: [1] meta
-- ARGV: [4] {id}
-- Returns: the attempts
-- Atomicity: reads only.
-- needs: base
return reply(call('LRANGE', P .. 'attempts:' .. ARGS.id, 0, -1))
