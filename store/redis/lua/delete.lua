-- Forgets a job: nobody is shown it any more, its key is free, and no tombstone is left.
-- KEYS: [1] meta
-- ARGV: [4] {id, ttl: result_ttl ms}   [5] outcome of a cancelled job, opaque
-- Returns: parts of the record as it was last, or false when the job is unknown; ids of blobs that are no more; ids of
--       those whose file is to be unlinked. Or {"refused", "state", parts}: a child, or a group that another lists
-- Atomicity: one step. An unfinished job is cancelled in it. Record and bytes go at once when its audit event has been
--       taken, else with it (audited). A group is hidden in it, with all its children; what is much goes in steps behind.
-- needs: base room moves lanes records bars slots executions groups remains blobs removal staged eviction
local BUDGET = 200

local job = remains(ARGS.id)
if not job then
  return reply(false, {}, {})
end
if parent_of(job.id) or job.gr and job.sb and call('EXISTS', P .. 'job:' .. job.sb) == 1 then
  return {'refused', 'state', parts(job)}
end
if job.gr and not TERMINAL[job.st] then
  cancel_group(job)
elseif not TERMINAL[job.st] then
  give_up(job, 'x', ARGV[5], ARGS.ttl)
end
if job.ik then
  local idem = P .. 'idem:' .. job.tn .. ':' .. hex(job.ik)
  if call('GET', idem) == job.id then
    call('DEL', idem)
  end
end
write(job, {de = 1})
local last, blobs, files = parts(job), {}, {}
if job.gr then
  remove_forgotten(job, BUDGET, blobs, files)
else
  hide(job)
  if not job.ad then
    remove(job, blobs, files, true)
  end
end
arrange_all({})
return reply(last, blobs, files)
