-- What is leased and who waits.
-- KEYS: [1] meta
-- ARGV: [4] {up}
-- Returns: a list of [URL, leases], interactive waiters, batch waiters, paused 0 | 1, URLs of the barred endpoints
-- Atomicity: reads only (dead leases of calls are purged). O(endpoints + waiting calls).
-- needs: base lanes bars slots
local caps = call('HGET', P .. 'caps', ARGS.up)
local used, waiting, barred = {}, {i = 0, b = 0}, {}
if caps then
  for _, endpoint in ipairs(cmsgpack.unpack(caps).endpoints) do
    local key = P .. 'slots:' .. ARGS.up .. ':' .. endpoint[1]
    call('ZREMRANGEBYSCORE', key, '-inf', NOW)
    local leases = call('ZCARD', key)
    if leases > 0 then
      used[#used + 1] = {endpoint[2], leases}
    end
    if offered(ARGS.up, endpoint[1], 1) == 0 then
      barred[#barred + 1] = endpoint[2]
    end
  end
  for cls in pairs(waiting) do
    for _, tenant in ipairs(call('HKEYS', P .. 'wheads:' .. ARGS.up .. ':' .. cls)) do
      waiting[cls] = waiting[cls] + call('ZCARD', P .. 'waiters:' .. ARGS.up .. ':' .. cls .. ':' .. tenant)
    end
  end
end
return reply(used, waiting.i, waiting.b, call('SISMEMBER', P .. 'paused', ARGS.up), barred)
