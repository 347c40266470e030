-- The ledger in figures.
-- KEYS: [1] meta
-- ARGV: [4] {}
-- Returns: the tally as a flat list of cells and figures; depth; bytes stored; audit events due; means by upstream as a
--       flat list; [up, class, created_at] of the oldest ready job of each upstream and class;
--       the store's time
-- Atomicity: reads only, one snapshot. O(tenants x upstreams), never O(jobs).
-- needs: base moves lanes records
local tally = call('HGETALL', P .. 'tally')
local oldest, order = {}, {}
for n = 1, #tally, 2 do
  local tenant, up, cls, state = string.match(tally[n], '^([^|]*)|([^|]*)|(%a)|(%a)$')
  if state == 'q' and up ~= '' then
    local at = up .. ':' .. cls
    local lane = P .. 'lane:' .. at .. ':' .. tenant
    if not oldest[at] then
      oldest[at] = {up, cls}
      order[#order + 1] = oldest[at]
    end
    local low = 0
    while true do -- the first of each number that the lane has
      local entry = call('ZRANGEBYSCORE', lane, low, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      if not entry[1] then
        break
      end
      local number = floor(tonumber(entry[2]) / UNIT)
      local place = tonumber(entry[2]) - number * UNIT
      if not oldest[at].place or place < oldest[at].place then
        oldest[at].place, oldest[at][3] = place, load(entry[1]).ca
      end
      low = (number + 1) * UNIT
    end
  end
end
return reply(
  tally,
  tonumber(call('HGET', P .. 'depth', '*') or 0),
  tonumber(call('HGET', KEYS[1], 'stored') or 0),
  call('ZCARD', P .. 'audit_due'),
  call('HGETALL', P .. 'means'),
  order,
  NOW
)
