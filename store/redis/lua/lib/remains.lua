-- What is left of a job once retention lets it go, whether the sweep has come by or not; and what admission counts.

-- A child that is no record, as it is shown: held, or dropped when its group was stopped. `entry` is its own, if it is
-- at hand. Marked by `cold`, which lies in the entry.
local function unreleased(parent, index, entry)
  entry = entry or call('HGET', P .. 'entries:' .. parent.id, index)
  local fields = entry and cmsgpack.unpack(entry) or {}
  if #fields < 7 then
    return nil
  end
  local up, priority, blob, ttl, hook, _, cold = unpack(fields)
  local born = parent.ca
  local job = {
    id = parent.id .. '.' .. index, tn = parent.tn, st = 'q', up = up, pb = blob, cold = cold, packs = {},
    pr = priority, sq = 0, cg = 0, vs = 0, ca = born, ua = born, qa = born, rt = ttl or nil, hk = hook or nil,
  }
  local dropped = tonumber(call('HGET', P .. 'group:' .. parent.id, 'dropped') or nil)
  if dropped then
    job.st, job.vs, job.qa, job.fa, job.ua = 'x', 1, nil, dropped, dropped
  end
  for pack = 1, #PACKS do
    job.packs[pack] = pack_numbers(job, pack)
  end
  return job
end

-- Gives the record (or a child that is none yet), or nil and when it expired, or nil and nil.
local function remains(id)
  local job = load(id)
  local parent_id, index = parent_of(id)
  local head = parent_id and load(parent_id) or job
  if head and not head.de then
    if is_expired(head) then
      return nil, job and head.xa
    end
    return job or unreleased(head, index)
  end
  local stone = P .. 'tombs'
  local expired_at = call('ZSCORE', stone, id) or job and call('ZSCORE', stone, head.id)
  return nil, expired_at and tonumber(expired_at)
end

local function stored_bytes()
  return tonumber(call('HGET', KEYS[1], 'stored') or 0)
end

-- How many finished jobs are too young for retention to take them, when they are more than the bound.
local function young_finished(bound, min_result_ms)
  local total, young = 0, 0
  for _, key in ipairs({'finished', 'kept', 'audit_due'}) do
    total = total + call('ZCARD', P .. key)
  end
  if total <= bound then
    return nil
  end
  for _, key in ipairs({'finished', 'kept', 'audit_due'}) do
    young = young + call('ZCOUNT', P .. key, '(' .. (NOW - min_result_ms), '+inf')
  end
  return young > bound and young or nil
end
