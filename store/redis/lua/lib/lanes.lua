-- Lanes, served by stride scheduling; of jobs and, the same way, of waiting calls.
--   A lane is a sorted set of one (upstream, class, tenant), score = priority number * UNIT + place in the order of
--   arrival. `act` holds one member for each lane with work that is not parked: score 0, and a name whose
--   lexicographic order is (priority of the head, pass, place of the head). `heads` says which member is a tenant's.
--   Each number has a present pass: that of the lane served last, before its addition. A lane that gains its first
--   entry of a number starts at max(its own pass, the present one). Passes of empty lanes are kept (`ahead`) while
--   they are above the present one.
local UNIT = 70368744177664 -- 2^46
local STRIDE = 1000000 -- of weight 1
local JOBS = {letter = 'j', lane = 'lane:', act = 'act:', heads = 'heads:', pass = 'pass:', ahead = 'ahead:'}
local CALLS = {
  letter = 'w', lane = 'waiters:', act = 'wact:', heads = 'wheads:', pass = 'wpass:', ahead = 'wahead:',
}
local KINDS = {j = JOBS, w = CALLS}

-- A tenant's limits: stride, max_processing or nil, max_queued or nil.
local LIMITS = {}
local function limits(tenant)
  local known = LIMITS[tenant]
  if not known then
    local found = call('HMGET', P .. 'tenants', tenant, '*')
    local text = found[1] or found[2] or (STRIDE .. '||')
    local stride, processing, queued = string.match(text, '^(%d+)|(%d*)|(%-?%d*)$')
    known = {stride = tonumber(stride), processing = tonumber(processing), queued = tonumber(queued)}
    LIMITS[tenant] = known
  end
  return known
end

-- A lane's first entry and its score, as a list; empty without one.
local function head_of(kind, up, cls, tenant)
  return call('ZRANGE', P .. kind.lane .. up .. ':' .. cls .. ':' .. tenant, 0, 0, 'WITHSCORES')
end

-- The lane has this head now: `act` and `heads` follow.
local function refresh(kind, up, cls, tenant, head)
  local at = up .. ':' .. cls
  local heads = P .. kind.heads .. at
  local old = call('HGET', heads, tenant)
  if head[1] and old == 'P' then
    return
  end
  local new
  if head[1] then
    local score = tonumber(head[2])
    local number = floor(score / UNIT)
    local pass = tonumber(call('HGET', P .. kind.pass .. at, number .. ':' .. tenant))
    new = string.format('%03d%016.0f%016.0f', number, pass, score - number * UNIT) .. tenant
  end
  if new == old then
    return
  end
  if old == 'P' then
    call('SREM', P .. 'parked:' .. tenant, kind.letter .. ':' .. at)
    if call('EXISTS', P .. 'parked:' .. tenant) == 0 then
      call('SREM', P .. 'parked', tenant)
    end
  elseif old then
    call('ZREM', P .. kind.act .. at, old)
  end
  if new then
    call('ZADD', P .. kind.act .. at, 0, new)
    call('HSET', heads, tenant, new)
  else
    call('HDEL', heads, tenant)
  end
end

-- Whether a lane with this head has entries of a number.
local function has_number(lane, head, number)
  local low = number * UNIT
  if head[1] and floor(tonumber(head[2]) / UNIT) ~= number then
    return #call('ZRANGEBYSCORE', lane, low, low + UNIT - 1, 'LIMIT', 0, 1) > 0
  end
  return head[1] ~= nil
end

local function join(kind, up, cls, tenant, number, place, member)
  local at = up .. ':' .. cls
  local lane = P .. kind.lane .. at .. ':' .. tenant
  local low = number * UNIT
  local head = head_of(kind, up, cls, tenant)
  if not has_number(lane, head, number) then
    local ahead = P .. kind.ahead .. at .. ':' .. number
    local own = call('ZSCORE', ahead, tenant)
    if own then
      call('ZREM', ahead, tenant)
    end
    local present = call('HGET', P .. kind.pass .. at, number)
    call('HSET', P .. kind.pass .. at, number .. ':' .. tenant, max(tonumber(own or 0), tonumber(present or 0)))
  end
  call('ZADD', lane, low + place, member)
  if not head[1] or low + place < tonumber(head[2]) then
    refresh(kind, up, cls, tenant, {member, low + place})
  end
end

-- The number has become empty: its pass is kept only while it says something.
local function vacate(kind, up, cls, tenant, number)
  local at = up .. ':' .. cls
  local passes = P .. kind.pass .. at
  local own = call('HGET', passes, number .. ':' .. tenant)
  if own then
    call('HDEL', passes, number .. ':' .. tenant)
    if tonumber(own) > tonumber(call('HGET', passes, number) or 0) then
      call('ZADD', P .. kind.ahead .. at .. ':' .. number, own, tenant)
    end
  end
end

local function leave(kind, up, cls, tenant, number, member)
  local lane = P .. kind.lane .. up .. ':' .. cls .. ':' .. tenant
  if call('ZREM', lane, member) == 1 then
    local head = head_of(kind, up, cls, tenant)
    if not has_number(lane, head, number) then
      vacate(kind, up, cls, tenant, number)
    end
    refresh(kind, up, cls, tenant, head)
  end
end

-- The head of a lane is served: move the lane's pass. The head itself is left to the caller, who makes it leave.
local function serve(kind, up, cls, tenant, number, pass)
  local at = up .. ':' .. cls
  call('HSET', P .. kind.pass .. at, number, pass, number .. ':' .. tenant, pass + limits(tenant).stride)
  call('ZREMRANGEBYSCORE', P .. kind.ahead .. at .. ':' .. number, '-inf', pass)
end

-- The lane whose turn it is: its tenant, the number and pass of its head, and the head; nil without one.
local function first(kind, up, cls)
  local at = up .. ':' .. cls
  local member = call('ZRANGE', P .. kind.act .. at, 0, 0)[1]
  if not member then
    return nil
  end
  local tenant = string.sub(member, 36)
  return {
    tenant = tenant,
    number = tonumber(string.sub(member, 1, 3)),
    pass = tonumber(string.sub(member, 4, 19)),
    head = call('ZRANGE', P .. kind.lane .. at .. ':' .. tenant, 0, 0)[1],
  }
end

-- The tenant is at its bound: its lane offers nothing until one of its leases ends.
local function park(kind, up, cls, tenant)
  local at = up .. ':' .. cls
  call('ZREM', P .. kind.act .. at, call('HGET', P .. kind.heads .. at, tenant))
  call('HSET', P .. kind.heads .. at, tenant, 'P')
  call('SADD', P .. 'parked:' .. tenant, kind.letter .. ':' .. at)
  call('SADD', P .. 'parked', tenant)
end

-- A tenant's parked lanes return. Adds the upstreams they belong to to `touched`.
local function unpark(tenant, touched)
  local parked = call('SMEMBERS', P .. 'parked:' .. tenant)
  for _, entry in ipairs(parked) do
    local letter, up, cls = string.match(entry, '^(%a):(.*):(%a)$')
    call('HDEL', P .. KINDS[letter].heads .. up .. ':' .. cls, tenant)
    refresh(KINDS[letter], up, cls, tenant, head_of(KINDS[letter], up, cls, tenant))
    touched[up] = true
  end
  if parked[1] and call('DEL', P .. 'parked:' .. tenant) == 1 then
    call('SREM', P .. 'parked', tenant)
  end
end
