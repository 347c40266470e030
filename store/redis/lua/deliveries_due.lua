-- Takes deliveries whose time has come, earliest first, and holds them: nobody else is given them meanwhile.
-- KEYS: [1] meta
-- ARGV: [4] {limit, hold: ms}
-- Returns: [job id, parts of its record or false, letter or false, the latest attempt or false] of each
-- Atomicity: one step.
-- needs: base moves lanes records remains
local taken = {}
for n, id in ipairs(call('ZRANGEBYSCORE', P .. 'hook_due', '-inf', NOW, 'LIMIT', 0, ARGS.limit)) do
  call('ZADD', P .. 'hook_due', NOW + ARGS.hold, id)
  local job = remains(id)
  taken[n] = {
    id, job and parts(job) or false, call('GET', P .. 'letter:' .. id), call('LINDEX', P .. 'attempts:' .. id, -1),
  }
end
return reply(taken)
