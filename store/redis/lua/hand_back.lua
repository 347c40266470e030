-- Gives a job back unharmed: ready at once, old place, the attempt taken back.
-- KEYS: [1] meta
-- ARGV: [4] {id, fence, replica}
-- Returns: parts of the record; false when the claim is lost (nothing was changed)
-- Atomicity: one step.
-- needs: base room moves lanes records bars slots executions groups
local job = held(ARGS.id, ARGS.fence, ARGS.replica)
if not job then
  return reply(false)
end
local touched = {}
hand_back(job, touched)
arrange_all(touched)
return reply(parts(job))
