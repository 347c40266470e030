-- A waiting call takes the slot that was offered to it.
-- KEYS: [1] meta
-- ARGV: [4] {up, short, cls, tenant, name, visibility: ms}
-- Returns: 1; 0 when the offer has expired (nothing was changed)
-- Atomicity: one step.
-- needs: base room
local key = P .. 'slots:' .. ARGS.up .. ':' .. ARGS.short
local expiry = tonumber(call('ZSCORE', key, ARGS.name) or 0)
if expiry <= NOW then
  return reply(0)
end
call('ZADD', key, NOW + ARGS.visibility, ARGS.name)
call('ZADD', P .. 'busy:' .. ARGS.tenant, NOW + ARGS.visibility, ARGS.name)
if ARGS.cls == 'b' then
  call('ZADD', P .. 'batch:' .. ARGS.up, NOW + ARGS.visibility, ARGS.name)
end
return reply(1)
