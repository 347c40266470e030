-- Says that a replica lives, does what is due by now (delayed jobs, ends of bars, tokens), and, as a whole one, gives on
-- what the dead have left: expired leases of calls, offers that nobody took, places in line.
-- KEYS: [1] meta
-- ARGV: [4] {lives: ms, idle: upstreams whose dispatcher waits, idle_ms, whole, portion, schema: of the keys, epoch: a new one}
-- Returns: 1 when the replica was known to live, 0 when not (what happened meanwhile was not told to it);
--       when to tick again for a delayed job, a bar or a token (ms, maybe past) or false; the store's change number;
--       how many replicas live; names of the upstreams that are paused
-- Atomicity: one step.
-- needs: base room moves lanes records bars slots executions groups schedule
local replicas = P .. 'replicas'
local known = call('ZSCORE', replicas, REPLICA) and 1 or 0
call('ZREMRANGEBYSCORE', replicas, '-inf', NOW)
call('ZADD', replicas, NOW + ARGS.lives, REPLICA)
if known == 0 then
  call('HSETNX', KEYS[1], 'schema', ARGS.schema)
  call('HSETNX', KEYS[1], 'epoch', ARGS.epoch)
end
local touched = {}
for _, up in ipairs(ARGS.idle) do
  local idle = P .. 'idle:' .. up
  call('ZREMRANGEBYSCORE', idle, '-inf', NOW)
  if call('ZSCORE', idle, REPLICA) then
    call('ZADD', idle, NOW + ARGS.idle_ms, REPLICA)
    touched[up] = true
  else
    effect('r', up)
  end
end
if ARGS.whole then
  call('PEXPIRE', P .. 'waits:' .. REPLICA, WAITS_MS)
  forget_dead_calls(ARGS.portion, touched)
  arrange_all(touched)
end
promote(ARGS.portion)
for _, up in ipairs(call('ZRANGEBYSCORE', P .. 'alarms', '-inf', NOW)) do
  call('ZREM', P .. 'alarms', up)
  arrange(up)
end
if call('EXISTS', P .. 'ended') == 1 then
  effect('f')
end
if call('EXISTS', P .. 'unsettled') == 1 then
  effect('g')
end
local due
for _, key in ipairs({'delayed', 'alarms'}) do
  local at = tonumber(call('ZRANGE', P .. key, 0, 0, 'WITHSCORES')[2])
  if at and (not due or at < due) then
    due = at
  end
end
local change = tonumber(call('HGET', KEYS[1], 'change') or 0)
return reply(known, due or false, change, call('ZCARD', replicas), call('SMEMBERS', P .. 'paused'))
