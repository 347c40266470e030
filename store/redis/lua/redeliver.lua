-- Has the word of a finished job delivered (again), now.
-- KEYS: [1] meta
-- ARGV: [4] {id}
-- Returns: 1, or 0 when the job has no callback_url, has not ended or is unknown
-- Atomicity: one step.
-- needs: base moves lanes records remains
local job = remains(ARGS.id)
if not job or not job.hk or not TERMINAL[job.st] then
  return reply(0)
end
call('ZADD', P .. 'hook_due', NOW, job.id)
return reply(1)
