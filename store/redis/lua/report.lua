-- Stores one progress report; progress never falls within an attempt.
-- KEYS: [1] meta
-- ARGV: [4] {id, fence, replica, stage, progress}
-- Returns: 1, or false when the claim is lost (nothing was changed)
-- Atomicity: one step.
-- needs: base room moves lanes records
local job = held(ARGS.id, ARGS.fence, ARGS.replica)
if not job then
  return reply(false)
end
write(job, {sg = ARGS.stage, pg = max(job.pg or 0, min(1, ARGS.progress))})
return reply(1)
