-- Calls that were given their slots while this store was away hold them from now on, whether there is room or not: where
-- there are too many, nothing is granted until their number is below.
-- KEYS: [1] meta
-- ARGV: [4] {calls: [[name, up, short, cls, tenant]], ups: [upstream], visibility: ms}   [5..] capacities of each (see claim)
-- Returns: 1
-- Atomicity: one step. Run again it changes only their expiry.
-- needs: base room lanes bars slots
local pools = {}
for n, up in ipairs(ARGS.ups) do
  pools[up] = open_pool(up) or open_pool(up, ARGV[4 + n]) -- the calls may have begun before a reload
end
for _, given in ipairs(ARGS.calls) do
  local name, up, short, cls, tenant = unpack(given)
  local endpoint = pools[up].by_short[short]
    or {key = P .. 'slots:' .. up .. ':' .. short, free = 0} -- it was taken out of the configuration meanwhile
  for _, other in ipairs(pools[up].endpoints) do
    if other.short ~= short then
      call('ZREM', other.key, name) -- it has moved since this was told before
    end
  end
  take(pools[up], endpoint, cls, tenant, name, NOW + ARGS.visibility)
end
return reply(1)
