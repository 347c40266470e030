-- Pauses or interrupts a queued job.
-- KEYS: [1] meta
-- ARGV: [4] {id, status: "h" | "i"}
-- Returns: parts of the record as it is now; false when the job is unknown; or {"refused", "state", parts}, also
--       for a group and its children
-- Atomicity: one step. Run again it changes nothing.
-- needs: base moves lanes records bars slots executions remains
local job = remains(ARGS.id)
if not job then
  return reply(false)
end
if job.st == ARGS.status then
  return reply(parts(job))
end
if job.st ~= 'q' or job.gr or parent_of(job.id) then
  return {'refused', 'state', parts(job)}
end
write(job, {st = ARGS.status, qm = queued_ms(job), qa = false, dl = false, hd = NOW})
call('ZADD', P .. 'holds', NOW, job.id)
return reply(parts(job))
