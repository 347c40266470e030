-- Tells the followers of jobs that have ended; a bounded portion.
-- KEYS: [1] meta
-- ARGV: [4] {portion, ttl: result_ttl ms}   [5] outcome of a job that follows one that did not complete, opaque
--       [6] outcome of a cancelled job, opaque
-- Returns: how many were told; when it is the whole portion there may be more
-- Atomicity: one step for the portion; a crash leaves the rest for the next.
-- needs: base room moves lanes records bars slots executions groups remains births
local told = 0

local function tell(job, good)
  if not good then
    give_up(job, job.st == 'q' and 'f' or 'x', job.st == 'q' and ARGV[5] or ARGV[6], ARGS.ttl)
    return
  end
  local waiting = job.wf - 1
  local later = waiting == 0 and job.ra and job.ra > NOW and job.ra or false
  local changes = {wf = waiting > 0 and waiting or false}
  if waiting == 0 then
    changes.da = later
    if job.st == 'q' and not later then
      changes.dl = false
    end
  end
  write(job, changes)
  if job.st == 'q' and later then
    enter(job)
  end
  arrange(job.up)
end

for _, id in ipairs(call('SMEMBERS', P .. 'ended')) do
  local before = load(id)
  local good = before and completed(before)
  local waiting = P .. 'followers:' .. id
  local follower = told < ARGS.portion and call('SPOP', waiting)
  while follower do
    local job = load(follower)
    if job and not TERMINAL[job.st] then
      tell(job, good)
    end
    told = told + 1
    follower = told < ARGS.portion and call('SPOP', waiting)
  end
  if call('EXISTS', waiting) == 0 then
    call('SREM', P .. 'ended', id)
  end
end
arrange_all({})
return reply(told)
