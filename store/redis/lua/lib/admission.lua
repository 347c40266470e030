-- Whether something may come in: the bounds, and what an idempotency key made.

-- What admission compares with what is counted now, for so many jobs and bytes; nil, or what create answers.
local function refusal(tenant, size, jobs)
  local depth = tonumber(call('HGET', P .. 'depth', '*') or 0)
  if depth + jobs > ARGS.max_queued then
    return {'refused', 'queue', depth, ARGS.max_queued}
  end
  local bound = limits(tenant).queued or ARGS.max_queued - floor(ARGS.max_queued / 2)
  local own = tonumber(call('HGET', P .. 'depth', tenant) or 0)
  if own + jobs > bound then
    return {'refused', 'tenant', own, bound}
  end
  if stored_bytes() + size > ARGS.max_stored then
    return {'refused', 'stored', stored_bytes()}
  end
  local young = young_finished(ARGS.max_finished, ARGS.min_result)
  return young and {'refused', 'finished', young}
end

-- What the job's key, or its id, has made already, as create answers; nil for nothing.
local function known()
  if not ARGS.key then
    local made = load(ARGS.id)
    return made and reply(parts(made), 0, false, stored_bytes())
  end
  local id = call('GET', P .. 'idem:' .. ARGS.tenant .. ':' .. ARGS.key)
  if not id then
    return nil
  end
  local job, expired_at = remains(id)
  if job and job.fp ~= ARGV[8] then
    return {'refused', 'key', id}
  elseif job then
    return reply(parts(job), id == ARGS.id and 0 or 1, false, stored_bytes())
  elseif expired_at then
    return {'refused', 'expired', id, expired_at}
  end
end
