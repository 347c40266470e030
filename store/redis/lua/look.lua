-- Is there a slot and a ready job for it? If not, the replica counts as waiting, and the next chance is made known to it.
-- KEYS: [1] meta
-- ARGV: [4] {up, ceiling, idle: ms}   [5] capacities (see claim)
-- Returns: 1 or 0
-- Atomicity: one step: no chance falls between the look and the wait.
-- needs: base room moves lanes records bars slots executions groups schedule
promote(200)
local pool = open_pool(ARGS.up, ARGV[5])
wait_for_chance(ARGS.up, ARGV[5], ARGS.idle)
while true do
  local cls, lane, of_job = next_in_line(pool, true, ARGS.ceiling)
  if of_job then
    call('ZREM', P .. 'idle:' .. ARGS.up, REPLICA)
    return reply(1)
  elseif not cls then
    return reply(0)
  end
  offer(pool, cls, lane)
end
