-- Lets a held job wait again, in its old place, for what it waited before.
-- KEYS: [1] meta
-- ARGV: [4] {id}
-- Returns: parts of the record as it is now; false when the job is unknown; or {"refused", "state", parts}
-- Atomicity: one step.
-- needs: base moves lanes records bars slots remains
local job = remains(ARGS.id)
if not job then
  return reply(false)
end
if job.st ~= 'h' and job.st ~= 'i' then
  return {'refused', 'state', parts(job)}
end
local later = job.wf or (job.da and job.da > NOW)
write(job, {st = 'q', qa = NOW, hd = false, dl = later and 1 or false})
call('ZREM', P .. 'holds', job.id)
arrange(job.up)
return reply(parts(job))
