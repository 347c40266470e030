-- Gives a job back after a failed attempt, ready after a delay, in its old place.
-- KEYS: [1] meta
-- ARGV: [4] {id, fence, replica, delay: ms, kind, counted, upstream_ms, avoid: its endpoint next time,
--           bar: the endpoint asked to be left alone: ms, 0 when it did not say how long; or nil}
-- Returns: parts of the record; false when the claim is lost (nothing was changed)
-- Atomicity: one step: the attempt is closed, the slot freed, the job queued or scheduled.
-- needs: base room moves lanes records bars slots executions groups
local job = held(ARGS.id, ARGS.fence, ARGS.replica)
if not job then
  return reply(false)
end
local changes = back_in_queue(end_attempt(job, 'requeued', ARGS.kind, ARGS.upstream_ms))
if not ARGS.counted then
  changes.at = job.at - 1
  changes.bs = job.bs or NOW
else
  changes.bs = false
end
if ARGS.delay > 0 then
  changes.da, changes.dl = NOW + ARGS.delay, 1
end
changes.av = ARGS.avoid and 1 or false
local touched = {}
if ARGS.bar then
  bar(job.up, job.ep, ARGS.bar > 0 and ARGS.bar or nil)
else
  lift(job.up, job.ep)
end
let_go(job, ARGS.replica, touched)
write(job, changes)
arrange_all(touched)
return reply(parts(job))
