-- Takes back claims past their expiry: back to the queue at once, or failed when that has happened too often or too
-- late. A claim renewed in between is not met.
-- KEYS: [1] meta
-- ARGV: [4] {portion, deadline: processing_timeout ms, crashes: max_crashes, ttl: result_ttl ms}
--       [5] outcome of a job that is stuck, opaque   [6] outcome of one whose replicas died too often, opaque
-- Returns: requeued, failed
-- Atomicity: one step for the whole portion.
-- needs: base room moves lanes records bars slots executions groups
local requeued, failed = 0, 0
local touched = {}
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'claimed', '-inf', NOW, 'LIMIT', 0, ARGS.portion)) do
  local job = load(id)
  local replica, late = job.cb, job.ce - (job.sa or NOW) > ARGS.deadline
  effect('l', id, replica, job.fe)
  local changes = end_attempt(job, 'lost', 'worker_crash', 0)
  changes.cr = (job.cr or 0) + 1
  if late or changes.cr >= ARGS.crashes then
    terminal(job, changes, 'f', ARGS.ttl)
    call('SET', P .. 'end:' .. id, late and ARGV[5] or ARGV[6])
    failed = failed + 1
  else
    back_in_queue(changes)
    requeued = requeued + 1
  end
  let_go(job, replica, touched)
  write(job, changes)
end
for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'voided', '-inf', NOW, 'LIMIT', 0, ARGS.portion)) do
  drop_void(name, touched)
end
arrange_all(touched)
return reply(requeued, failed)
