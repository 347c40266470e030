-- Keeps what a later attempt resumes by.
-- KEYS: [1] meta
-- ARGV: [4] {id, fence, replica}   [5] the state, opaque
-- Returns: 1, or false when the claim is lost (nothing was changed)
-- Atomicity: one step.
-- needs: base moves lanes records
local job = held(ARGS.id, ARGS.fence, ARGS.replica)
if not job then
  return reply(false)
end
call('SET', P .. 'state:' .. job.id, ARGV[5])
write(job, {})
return reply(1)
