-- What changed after a change number: each job once, in its present state, in the order of its latest change.
-- KEYS: [1] meta
-- ARGV: [4] {tenant or "" for everybody's, after: change number, limit}
-- Returns: their parts; where to go on from; whether there may be more (1 | 0); the epoch
-- Atomicity: reads only, one snapshot. O(log n) for each job; for everybody's also O(tenants).
-- needs: base moves lanes records tenants
local tenants = ARGS.tenant ~= '' and {ARGS.tenant} or all_tenants()
local changed = {}
for _, tenant in ipairs(tenants) do
  local after = '(' .. string.format('%.0f', ARGS.after)
  local entries = call(
    'ZRANGEBYSCORE', P .. 'changes:' .. tenant, after, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGS.limit + 1)
  for n = 1, #entries, 2 do
    changed[#changed + 1] = {entries[n], tonumber(entries[n + 1])}
  end
end
table.sort(changed, function(one, other) return one[2] < other[2] end)
local found, on_from = {}, tonumber(call('HGET', KEYS[1], 'change') or 0)
local more = #changed > ARGS.limit
for n = 1, min(#changed, ARGS.limit) do
  local job = load(changed[n][1])
  if job and not is_gone(job) and not is_expired(job) then
    found[#found + 1] = parts(job)
  end
end
if more then
  on_from = changed[ARGS.limit][2]
end
return reply(found, on_from, more and 1 or 0, call('HGET', KEYS[1], 'epoch'))
