-- Pauses an upstream for every replica, or lets it go on.
-- KEYS: [1] meta
-- ARGV: [4] {up, paused}
-- Returns: 1
-- Atomicity: one step. Nothing is granted while paused; calls in flight end.
-- needs: base lanes bars slots
if ARGS.paused then
  call('SADD', P .. 'paused', ARGS.up)
else
  call('SREM', P .. 'paused', ARGS.up)
  arrange(ARGS.up)
end
effect('p', ARGS.up, ARGS.paused and 1 or 0)
return reply(1)
