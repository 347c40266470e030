-- Finished jobs whose audit event is still due, earliest first.
-- KEYS: [1] meta
-- ARGV: [4] {before: ms, limit}
-- Returns: their parts
-- Atomicity: reads only, one snapshot.
-- needs: base moves lanes records
local found = {}
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'audit_due', '-inf', '(' .. ARGS.before, 'LIMIT', 0, ARGS.limit)) do
  found[#found + 1] = parts(load(id))
end
return reply(found)
