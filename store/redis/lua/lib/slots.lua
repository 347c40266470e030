-- Slots: who may have a call in flight, and who is next.
--   A lease is a member of its endpoint's set, named "<job id>:<fence>" or "<replica>:<n>", never a counter. A job's
--   lease has the score +inf: it ends in the step that ends its claim and no other. A call's has its expiry.
--   Capacities come with each claim and acquire; the latest are kept for the steps that free something, and for each
--   dispatcher that waits those that it came with: what one replica cannot use another may.
--   Interactive before batch; batch only while its leases are below slots - reserved. Within a class a waiting call
--   goes before a ready job, but after four calls in a row a ready job gets the next slot.
local CLASSES = {'i', 'b'}
local CALLS_IN_A_ROW = 4
local OFFER_MS = 2000
local LOOKED_AT = 50 -- dead waiters that one step skips

-- Whole tokens of an upstream's rate that have come by now.
local function count_tokens(pool)
  local bucket = call('HMGET', P .. 'buckets', pool.name .. ':n', pool.name .. ':at')
  pool.tokens = pool.rate[2]
  if bucket[1] then
    local come = max(0, NOW - tonumber(bucket[2])) * pool.rate[1] / 1000
    pool.tokens = min(pool.rate[2], tonumber(bucket[1]) + come)
  end
end

local function spend_token(pool)
  if pool.rate then
    pool.tokens = pool.tokens - 1
    call('HSET', P .. 'buckets', pool.name .. ':n', pool.tokens, pool.name .. ':at', NOW)
  end
end

-- Whether the upstream's rate lets a job begin; if not, somebody is to look again when it does.
local function has_token(pool)
  if not pool.rate or pool.tokens >= 1 - 1e-9 then
    return true
  end
  alarm(pool.name, NOW + math.ceil((1 - pool.tokens) * 1000 / pool.rate[1]))
  return false
end

-- The pool as these capacities make it, or the latest; nil when there are none. `looks`: they are not the latest.
local function open_pool(up, packed, looks)
  local kept = not looks and call('HGET', P .. 'caps', up)
  if not packed and not kept then
    return nil
  end
  local spec = cmsgpack.unpack(packed or kept)
  if packed and packed ~= kept and not looks then
    call('HSET', P .. 'caps', up, packed)
    for _, given in ipairs(spec.endpoints) do
      call('HSET', P .. 'endpoints', given[1], given[2])
    end
  end
  local pool = {name = up, packed = packed or kept, endpoints = {}, by_short = {}}
  local total = 0
  local paused = call('SISMEMBER', P .. 'paused', up) == 1
  for n, given in ipairs(spec.endpoints) do
    local endpoint = {short = given[1], url = given[2], key = P .. 'slots:' .. up .. ':' .. given[1]}
    call('ZREMRANGEBYSCORE', endpoint.key, '-inf', NOW)
    endpoint.free = paused and 0 or max(0, offered(up, given[1], given[3]) - call('ZCARD', endpoint.key))
    total = total + given[4]
    pool.endpoints[n] = endpoint
    pool.by_short[endpoint.short] = endpoint
  end
  local batch = P .. 'batch:' .. up
  call('ZREMRANGEBYSCORE', batch, '-inf', NOW)
  pool.batch_left = total - spec.reserved - call('ZCARD', batch)
  if spec.rate then
    pool.rate = spec.rate
    count_tokens(pool)
  end
  return pool
end

local function room(pool, cls)
  local free = 0
  for _, endpoint in ipairs(pool.endpoints) do
    free = free + endpoint.free
  end
  return cls == 'i' and free or max(0, min(free, pool.batch_left))
end

-- The endpoint with the most free slots, ties at random; nil when none is free. `barred` holds shorts not to use.
local function most_free(pool, barred)
  local most, best = 0, {}
  for _, endpoint in ipairs(pool.endpoints) do
    if endpoint.free >= most and endpoint.free > 0 and not (barred and barred[endpoint.short]) then
      if endpoint.free > most then
        most, best = endpoint.free, {}
      end
      best[#best + 1] = endpoint
    end
  end
  return best[1 + call('TIME')[2] % max(1, #best)]
end

local function at_bound(tenant)
  local bound = limits(tenant).processing
  if not bound then
    return false
  end
  return call('ZCOUNT', P .. 'busy:' .. tenant, '(' .. NOW, '+inf') >= bound
end

-- Names of calls whose replica died go out of their tenants' sets, a portion of the tenants a step; what was parked for
-- them returns.
local function forget_dead_calls(portion, touched)
  for _, tenant in ipairs(call('SRANDMEMBER', P .. 'callers', portion)) do
    local busy = P .. 'busy:' .. tenant
    if call('ZREMRANGEBYSCORE', busy, '-inf', NOW) > 0 then
      unpark(tenant, touched)
    end
    if call('ZCOUNT', busy, '-inf', '(+inf') == 0 then
      call('SREM', P .. 'callers', tenant)
    end
  end
end

local function take(pool, endpoint, cls, tenant, name, expiry)
  call('ZADD', endpoint.key, expiry, name)
  call('ZADD', P .. 'busy:' .. tenant, expiry, name)
  if expiry ~= '+inf' then
    call('SADD', P .. 'callers', tenant)
  end
  endpoint.free = endpoint.free - 1
  if cls == 'b' then
    call('ZADD', P .. 'batch:' .. pool.name, expiry, name)
    pool.batch_left = pool.batch_left - 1
  end
end

-- Free a lease by its name; a name that is not there changes nothing. Gives 1 when it was.
local function free(up, short, tenant, name)
  call('ZREM', P .. 'batch:' .. up, name)
  call('ZREM', P .. 'busy:' .. tenant, name)
  return call('ZREM', P .. 'slots:' .. up .. ':' .. short, name)
end

-- The first lane of a kind whose tenant is below its bound; others are parked on the way.
local function first_allowed(kind, up, cls)
  local lane = first(kind, up, cls)
  while lane and at_bound(lane.tenant) do
    park(kind, up, cls, lane.tenant)
    lane = first(kind, up, cls)
  end
  return lane
end

local function forget_waiter(up, cls, tenant, name)
  leave(CALLS, up, cls, tenant, 0, name)
  call('ZREM', P .. 'alive:' .. up, name)
  local at = up .. ':' .. cls
  if call('EXISTS', P .. 'wheads:' .. at) == 0 then
    call('DEL', P .. 'wpass:' .. at, P .. 'wahead:' .. at .. ':0')
  end
end

-- The waiting call to serve: of a live waiter; entries of dead ones are dropped on the way.
local function first_waiter(up, cls)
  for _ = 1, LOOKED_AT do
    local lane = first_allowed(CALLS, up, cls)
    if not lane then
      return nil
    end
    local expiry = call('ZSCORE', P .. 'alive:' .. up, lane.head)
    if expiry and tonumber(expiry) > NOW then
      return lane
    end
    forget_waiter(up, cls, lane.tenant, lane.head)
  end
end

local function calls_in_a_row(up, cls)
  return tonumber(call('HGET', P .. 'rows', up .. ':' .. cls) or 0)
end

-- Who gets the next free slot: class and lane of a call, or of a job (`of_job`); nil for nobody.
local function next_in_line(pool, claims, ceiling)
  for _, cls in ipairs(CLASSES) do
    if room(pool, cls) > 0 then
      local waiter = first_waiter(pool.name, cls)
      local job = claims and first_allowed(JOBS, pool.name, cls)
      if job and (job.number > ceiling or not has_token(pool)) then
        job = nil
      end
      if waiter and not (job and calls_in_a_row(pool.name, cls) >= CALLS_IN_A_ROW) then
        return cls, waiter, false
      end
      if job then
        return cls, job, true
      end
    end
  end
end

-- Offer a slot to a waiting call: a lease that expires soon unless it is accepted. Gives its endpoint.
local function offer(pool, cls, lane)
  local name = lane.head
  local endpoint = most_free(pool)
  take(pool, endpoint, cls, lane.tenant, name, NOW + OFFER_MS)
  serve(CALLS, pool.name, cls, lane.tenant, 0, lane.pass)
  forget_waiter(pool.name, cls, lane.tenant, name)
  local at = pool.name .. ':' .. cls
  if call('EXISTS', P .. 'act:' .. at) == 1 then
    call('HINCRBY', P .. 'rows', at, 1)
  else
    call('HDEL', P .. 'rows', at)
  end
  effect('o', name, pool.name, endpoint.url)
  return endpoint
end

local WAITS_MS = 60000 -- longer than a replica counts as waiting unless it says so again

-- This replica's dispatcher waits from now on, and is told of the next chance that these capacities leave it.
local function wait_for_chance(up, packed, idle_ms)
  call('ZADD', P .. 'idle:' .. up, NOW + idle_ms, REPLICA)
  call('HSET', P .. 'waits:' .. REPLICA, up, packed)
  call('PEXPIRE', P .. 'waits:' .. REPLICA, WAITS_MS)
end

-- The capacities that waiting dispatchers came with, each once; nil when none waits.
local function waiting(up)
  local found
  for _, replica in ipairs(call('ZRANGEBYSCORE', P .. 'idle:' .. up, '(' .. NOW, '+inf')) do
    found = found or {}
    local packed = call('HGET', P .. 'waits:' .. replica, up)
    if packed then
      found[packed] = true
    end
  end
  return found
end

-- Something was freed or became ready: give free slots to whoever is next. Calls are offered theirs; dispatchers that
-- wait are told of their chance. Gives the endpoint offered to the waiter `own`, if it was.
local function arrange(up, pool, own)
  local waits = waiting(up)
  if not waits and call('EXISTS', P .. 'wact:' .. up .. ':i', P .. 'wact:' .. up .. ':b') == 0 then
    return nil
  end
  pool = pool or open_pool(up)
  local offered, told
  while pool do
    local cls, lane, of_job = next_in_line(pool, waits, 100)
    if not cls or of_job then
      told = of_job
      break
    end
    local name = lane.head
    local endpoint = offer(pool, cls, lane)
    if name == own then
      offered = endpoint
    end
  end
  for packed in pairs(waits or {}) do
    told = told or pool and packed ~= pool.packed and next_in_line(open_pool(up, packed, true), true, 100)
  end
  if told then
    effect('r', up)
  end
  return offered
end
