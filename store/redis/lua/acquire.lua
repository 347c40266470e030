-- A synchronous call asks for a slot: it stands in line, and gets one at once when it is its turn.
-- KEYS: [1] meta
-- ARGV: [4] {up, cls: "i" | "b", tenant, name: "<replica>:<n>", visibility: ms, patience: ms, most: callers
--   that may stand in line, or nil}   [5] capacities (see claim)
-- Returns: the endpoint's URL; false while it waits; 0 when the line is full (it does not stand in it)
-- Atomicity: one step. Run again with the same name it answers the same.
-- needs: base lanes bars slots

-- Nobody stands in line, not even parked, and no job is ready: what follows would give it the slot that it finds, with
-- three times the commands. Gives its endpoint, or nil when it has to stand in line.
local function at_once(pool)
  local i, b = ARGS.up .. ':i', ARGS.up .. ':b'
  if call('EXISTS', P .. 'wheads:' .. i, P .. 'wheads:' .. b, P .. 'act:' .. i, P .. 'act:' .. b) > 0 then
    return nil
  end
  if room(pool, ARGS.cls) == 0 or at_bound(ARGS.tenant) then
    return nil
  end
  call('HDEL', P .. 'rows', ARGS.up .. ':' .. ARGS.cls)
  local endpoint = most_free(pool)
  take(pool, endpoint, ARGS.cls, ARGS.tenant, ARGS.name, NOW + ARGS.visibility)
  return endpoint
end

local function hold(endpoint)
  call('ZADD', endpoint.key, NOW + ARGS.visibility, ARGS.name)
  call('ZADD', P .. 'busy:' .. ARGS.tenant, NOW + ARGS.visibility, ARGS.name)
  if ARGS.cls == 'b' then
    call('ZADD', P .. 'batch:' .. ARGS.up, NOW + ARGS.visibility, ARGS.name)
  end
  return reply(endpoint.url)
end

local pool = open_pool(ARGS.up, ARGV[5])
for _, endpoint in ipairs(pool.endpoints) do
  if call('ZSCORE', endpoint.key, ARGS.name) then -- it was offered one, and did not hear so
    return hold(endpoint)
  end
end
local free_one = at_once(pool)
if free_one then
  return reply(free_one.url)
end
local place = call('HINCRBY', KEYS[1], 'seq', 1)
if call('ZADD', P .. 'alive:' .. ARGS.up, NOW + ARGS.patience, ARGS.name) == 1 then
  join(CALLS, ARGS.up, ARGS.cls, ARGS.tenant, 0, place, ARGS.name)
end
local endpoint = arrange(ARGS.up, pool, ARGS.name)
if endpoint then
  return hold(endpoint)
end
if ARGS.most and call('ZCOUNT', P .. 'alive:' .. ARGS.up, '(' .. NOW, '+inf') > ARGS.most then
  forget_waiter(ARGS.up, ARGS.cls, ARGS.tenant, ARGS.name)
  return reply(0)
end
return reply(false)
