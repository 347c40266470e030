-- Moves a synchronous call's lease to a free slot of another endpoint.
-- KEYS: [1] meta
-- ARGV: [4] {up, short: where it is, cls, tenant, name, tried: shorts, visibility: ms}   [5] capacities (see claim)
-- Returns: the URL of the new endpoint; "" when none is free; false when the lease is not there (both: nothing was changed)
-- Atomicity: one step: the old slot is freed and the new one taken together.
-- needs: base room lanes bars slots
local pool = open_pool(ARGS.up, ARGV[5])
if not call('ZSCORE', P .. 'slots:' .. ARGS.up .. ':' .. ARGS.short, ARGS.name) then
  return reply(false)
end
local barred = {[ARGS.short] = true}
for _, short in ipairs(ARGS.tried) do
  barred[short] = true
end
local endpoint = most_free(pool, barred)
if not endpoint or (ARGS.cls == 'b' and pool.batch_left < 0) then
  return reply('')
end
free(ARGS.up, ARGS.short, ARGS.tenant, ARGS.name)
take(pool, endpoint, ARGS.cls, ARGS.tenant, ARGS.name, NOW + ARGS.visibility)
arrange(ARGS.up)
return reply(endpoint.url)
