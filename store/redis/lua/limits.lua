-- Replaces the tenants' limits; lanes parked at a bound return, and are parked again where it holds.
-- KEYS: [1] meta
-- ARGV: [4] {limits: {tenant or "*": "stride|max_processing|max_queued"}}
-- Returns: 1
-- Atomicity: one step; O(tenants).
-- needs: base room moves lanes records bars slots executions
call('DEL', P .. 'tenants')
for tenant, text in pairs(ARGS.limits) do
  call('HSET', P .. 'tenants', tenant, text)
end
local touched = {}
for _, tenant in ipairs(call('SMEMBERS', P .. 'parked')) do
  unpark(tenant, touched)
end
arrange_all(touched)
return reply(1)
