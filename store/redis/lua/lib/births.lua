-- New records, and jobs that follow others.
--   followers:<id> names the jobs that wait for the end of one; `ended` those that have ended and whose followers have
--   yet to be told, in steps of their own.

local function completed(job)
  return (job.st == 'c' or job.sf == 'c') and not job.de
end

-- The jobs that the new one is to follow, as they are; or nil and the first that is unknown to the tenant.
local function those_before()
  local before, seen = {}, {}
  for _, id in ipairs(ARGS.after or {}) do
    if not seen[id] then
      seen[id] = true
      local job = remains(id)
      if not job or job.cold or job.tn ~= ARGS.tenant then
        return nil, id
      end
      before[#before + 1] = job
    end
  end
  return before
end

-- Record a new job that is no child. It waits for nothing yet but its time: `settle` puts it where it waits.
local function born(blob_id, cold)
  local delayed = ARGS.run_at and ARGS.run_at > NOW
  local job = enrol(ARGS.id, {
    tn = ARGS.tenant, up = ARGS.up, pr = ARGS.priority, pb = blob_id, dg = raw(ARGS.digest), ra = ARGS.run_at,
    rt = ARGS.ttl, da = delayed and ARGS.run_at or nil, dl = delayed and 1 or nil, hk = ARGS.callback and 1 or nil,
  }, cold)
  call('ZADD', P .. 'jobs:' .. job.tn, 0, string.format('%013.0f', NOW) .. job.id)
  return job
end

-- A new job begins to wait: for those before it that have not ended, for its time, for its turn. One that follows a job
-- that ended without completing ends at once.
local function settle(job, before, ended, result_ttl_ms)
  local waiting, failed = 0, false
  for _, each in ipairs(before) do
    if not TERMINAL[each.st] then
      waiting = waiting + 1
      call('SADD', P .. 'followers:' .. each.id, job.id)
    elseif not completed(each) then
      failed = true
    end
  end
  if waiting > 0 then
    amend(job, {wf = waiting, dl = 1, da = false})
  end
  count(job, 1)
  count_unfinished(job, 1)
  enter(job)
  if failed then
    give_up(job, 'f', ended, result_ttl_ms)
  end
end
