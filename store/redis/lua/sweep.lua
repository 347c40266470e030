-- Lets finished jobs go: those past their time, then the earliest beyond the bound that are old enough; tombstones; and
-- what was staged for groups that were not made in time.
-- KEYS: [1] meta
-- ARGV: [4] {portion, max_finished, min_result: ms, ttl: how long a tombstone stays, ms, max_tombstones}
-- Returns: jobs evicted, tombstones removed, 1 when there may be more, ids of blobs that are no more, ids of those whose file
--       is to be unlinked
-- Atomicity: one step for the whole portion. Of a large group nothing is shown from its first portion on; the next sweeps
--       go on with it.
-- needs: base room moves lanes records bars slots executions groups blobs removal staged eviction
local blobs, files = {}, {}
local budget, evicted = ARGS.portion, 0

-- Gives how many records went.
local function evict(id)
  local job = load(id)
  if not job.de then
    entomb(job, min(NOW, job.xa))
    hide(job)
  end
  local removed = 1
  if job.gr then
    amend(job, {de = 1})
    call('ZREM', P .. 'finished', id)
    call('ZADD', P .. 'expiring', 0, id)
    budget, removed = remove_group(job, budget, blobs, files)
  else
    remove(job, blobs, files)
  end
  budget = budget - 1
  evicted = evicted + removed
  return removed
end

for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'staging', '-inf', '(' .. NOW, 'LIMIT', 0, ARGS.portion)) do
  if budget > 0 then
    budget = drop_staged(id, budget, blobs, files)
  end
end
local expired
repeat -- a group that goes lets the one go that it has superseded
  expired = call('ZRANGEBYSCORE', P .. 'expiring', '-inf', '(' .. NOW, 'LIMIT', 0, max(0, math.ceil(budget)))
  for _, id in ipairs(expired) do
    if budget > 0 then
      evict(id)
    end
  end
until not expired[1] or budget <= 0
local surplus = -ARGS.max_finished
for _, index in ipairs({'finished', 'kept', 'audit_due'}) do
  surplus = surplus + call('ZCARD', P .. index)
end
local most = min(surplus, math.ceil(budget))
if most > 0 then
  local old = '(' .. (NOW - ARGS.min_result)
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'finished', '-inf', old, 'LIMIT', 0, most)) do
    if surplus > 0 and budget > 0 then
      surplus = surplus - evict(id)
    end
  end
end

local removed = 0
local function forget(id)
  local found = call('HMGET', P .. 'tomb:' .. id, 'tenant', 'key')
  if found[2] then
    local idem = P .. 'idem:' .. found[1] .. ':' .. found[2]
    if call('GET', idem) == id then
      call('DEL', idem)
    end
  end
  call('ZREM', P .. 'tombs', id)
  call('DEL', P .. 'tomb:' .. id)
  removed = removed + 1
end

for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'tombs', '-inf', '(' .. (NOW - ARGS.ttl), 'LIMIT', 0, ARGS.portion)) do
  forget(id)
end
local beyond = min(call('ZCARD', P .. 'tombs') - ARGS.max_tombstones, ARGS.portion)
if beyond > 0 then
  for _, id in ipairs(call('ZRANGE', P .. 'tombs', 0, beyond - 1)) do
    forget(id)
  end
end
return reply(evicted, removed, (budget <= 0 or removed >= ARGS.portion) and 1 or 0, blobs, files)
