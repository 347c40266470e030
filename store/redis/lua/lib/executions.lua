-- Executions: what each of their ends has in common.
local KEPT_ATTEMPTS = 20
local MEAN_WEIGHT = 0.2

local function queued_ms(job)
  if not job.qa then
    return job.qm or 0
  end
  return (job.qm or 0) + max(0, NOW - max(job.qa, job.ra or 0))
end

-- Close the running attempt: its entry in the trail, its times, its claim. Gives the changes of the record.
local function end_attempt(job, outcome, error_kind, upstream_ms)
  local started = job.sa or NOW
  local url = job.ep and call('HGET', P .. 'endpoints', job.ep) or ''
  local trail = P .. 'trail:' .. job.id
  local kept = call('RPUSH', trail, cmsgpack.pack({job.at, job.cb, url, started, NOW, outcome, error_kind or ''}))
  if kept > KEPT_ATTEMPTS then
    call('LPOP', trail)
  end
  return {
    pm = (job.pm or 0) + max(0, NOW - started),
    um = (job.um or 0) + upstream_ms,
    cb = false,
    ce = false,
  }
end

local function back_in_queue(changes)
  changes.st, changes.qa, changes.da, changes.dl, changes.sg, changes.pg = 'q', NOW, false, false, false, false
  return changes
end

-- The claim and its slot are no more. Gives the upstreams where somebody may have a chance now to `touched`.
local function let_go(job, replica, touched)
  call('ZREM', P .. 'claimed', job.id)
  call('SREM', P .. 'held:' .. replica, job.id)
  call('SREM', P .. 'unlisted:' .. replica, job.id)
  free(job.up, job.ep or '', job.tn, job.id .. ':' .. job.fe)
  unpark(job.tn, touched)
  touched[job.up] = true
end

-- The claim of a running job is ended under its execution: its slot stays taken until the call is over.
local function void(job)
  local name = job.id .. ':' .. job.fe
  call('ZADD', P .. 'voided', job.ce, name)
  call('HSET', P .. 'void', name, cmsgpack.pack({job.up, job.ep, job.tn, job.cb}))
  call('ZREM', P .. 'claimed', job.id)
  call('SREM', P .. 'held:' .. job.cb, job.id)
  call('SREM', P .. 'unlisted:' .. job.cb, job.id)
  effect('l', job.id, job.cb, job.fe)
end

-- The call of a void claim is over, or its holder dead.
local function drop_void(name, touched)
  local packed = call('HGET', P .. 'void', name)
  if packed then
    local up, short, tenant = unpack(cmsgpack.unpack(packed))
    call('HDEL', P .. 'void', name)
    call('ZREM', P .. 'voided', name)
    free(up, short, tenant, name)
    unpark(tenant, touched)
    touched[up] = true
  end
end

-- Whatever was freed at these upstreams, or released by a group, goes to whoever is next.
local function arrange_all(touched)
  for up in pairs(RELEASED) do
    touched[up] = true
  end
  for up in pairs(touched) do
    arrange(up)
  end
end

-- The fields of a terminal record, beside what its status says.
local function terminal(job, changes, status, result_ttl_ms)
  changes.st, changes.fa, changes.bs, changes.ad = status, NOW, false, 1
  if not parent_of(job.id) then
    changes.xa = NOW + min(result_ttl_ms, job.rt or result_ttl_ms)
  end
  if job.hd then
    changes.hd = false
    call('ZREM', P .. 'holds', job.id)
  end
  call('DEL', P .. 'state:' .. job.id)
  return changes
end

-- The job ends without an execution having ended it: cancelled, or it waited too long. `ended` is opaque; without it the
-- job was cancelled with its group.
local function give_up(job, status, ended, result_ttl_ms)
  local changes
  if job.st == 'p' then
    changes = end_attempt(job, 'cancelled', 'cancelled', 0)
    void(job)
  else
    changes = {qm = queued_ms(job), qa = false, da = false, dl = false}
  end
  if ended then
    call('SET', P .. 'end:' .. job.id, ended)
  end
  write(job, terminal(job, changes, status, result_ttl_ms))
end

local function count_service(up, sample_ms)
  local mean = tonumber(call('HGET', P .. 'means', up) or sample_ms)
  call('HSET', P .. 'means', up, mean + MEAN_WEIGHT * (sample_ms - mean))
end

local function hand_back(job, touched)
  local replica = job.cb
  local changes = back_in_queue(end_attempt(job, 'handed_back', nil, 0))
  changes.at = job.at - 1
  let_go(job, replica, touched)
  write(job, changes)
end
