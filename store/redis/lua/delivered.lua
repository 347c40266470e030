-- Records an attempt to deliver the word of a job.
-- KEYS: [1] meta
-- ARGV: [4] {id, next: when it is due again, ms, or nil, kept: how many attempts}   [5] the attempt, opaque
--       [6] what is to be delivered then, opaque
-- Returns: 1
-- Atomicity: one step. A delivery that is over leaves nothing when its job is gone.
-- needs: base room
local attempts, letter = P .. 'attempts:' .. ARGS.id, P .. 'letter:' .. ARGS.id
if not call('ZSCORE', P .. 'hook_due', ARGS.id) then
  return reply(1)
end
call('RPUSH', attempts, ARGV[5])
call('LTRIM', attempts, -ARGS.kept, -1)
if ARGS.next then
  call('ZADD', P .. 'hook_due', ARGS.next, ARGS.id)
  call('SET', letter, ARGV[6])
else
  call('ZREM', P .. 'hook_due', ARGS.id)
  call('DEL', letter)
  if call('EXISTS', P .. 'job:' .. ARGS.id) == 0 then
    call('DEL', attempts)
  end
end
return reply(1)
