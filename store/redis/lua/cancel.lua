-- Ends a job as cancelled, whatever it is doing; a finished one is left as it is.
-- KEYS: [1] meta
-- ARGV: [4] {id, ttl: result_ttl ms}   [5] outcome of a cancelled job, opaque
-- Returns: parts of the record as it is now; false when the job is unknown
-- Atomicity: one step. A running execution loses its claim; its slot stays taken until it is given back, or until the
--       reclaim pass finds the claim past its expiry. Run again it changes nothing.
--       Of a group the children that are held are dropped in it, and up to 200 others ended; the rest is ended in steps
--       behind, and the group with its last child.
-- needs: base room moves lanes records bars slots executions groups remains
local job = remains(ARGS.id)
if not job then
  return reply(false)
end
if job.cold and not TERMINAL[job.st] then
  local parent_id, index = parent_of(job.id)
  job = release(load(parent_id), group_of(parent_id), index)
end
if job.gr and not TERMINAL[job.st] then
  cancel_group(job)
elseif not TERMINAL[job.st] then
  give_up(job, 'x', ARGV[5], ARGS.ttl)
end
arrange_all({})
return reply(parts(job))
