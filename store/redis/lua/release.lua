-- A synchronous call ends, or stops waiting: its lease and its place in line are no more, and whoever is next gets the slot.
-- KEYS: [1] meta
-- ARGV: [4] {up, shorts: of the endpoints where the lease may be, cls, tenant, name, answered: short of the endpoint that has
--   answered, or nil}
-- Returns: 1
-- Atomicity: one step. Releasing a name twice frees one slot once.
-- needs: base room lanes bars slots
for _, short in ipairs(ARGS.shorts) do
  free(ARGS.up, short, ARGS.tenant, ARGS.name)
end
if ARGS.answered then
  lift(ARGS.up, ARGS.answered)
end
if call('ZSCORE', P .. 'alive:' .. ARGS.up, ARGS.name) then
  forget_waiter(ARGS.up, ARGS.cls, ARGS.tenant, ARGS.name)
end
local touched = {[ARGS.up] = true}
unpark(ARGS.tenant, touched)
for up in pairs(touched) do
  arrange(up)
end
return reply(1)
