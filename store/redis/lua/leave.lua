-- Says that a replica is leaving: nobody waits for it any more.
-- KEYS: [1] meta
-- ARGV: [4] {ups: upstreams whose dispatcher waited}
-- Returns: 1
-- Atomicity: one step.
-- needs: base room
call('ZREM', P .. 'replicas', REPLICA)
for _, up in ipairs(ARGS.ups) do
  call('ZREM', P .. 'idle:' .. up, REPLICA)
end
call('DEL', P .. 'answers:' .. REPLICA, P .. 'unlisted:' .. REPLICA, P .. 'waits:' .. REPLICA)
return reply(1)
