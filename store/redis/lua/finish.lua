-- Ends a job, once, by its claim token.
-- KEYS: [1] meta
-- ARGV: [4] {id, fence, replica, n: the caller's number of this call, status: "c" | "f", kind, upstream_ms, ttl: result_ttl ms, blob: of the result or nil}
--       [5] the outcome, opaque   [6] the result's bytes when they come inline
-- Returns: parts of the final record; false when the claim is lost (nothing was changed)
-- Atomicity: one step; it sets audit_due, frees the slot, counts the job out. Run twice, the second answers false;
--       run again with the same number (a lost reply) it gives the same answer.
-- needs: base room moves lanes records bars slots executions groups blobs
local job = held(ARGS.id, ARGS.fence, ARGS.replica)
if not job then
  -- The same end again, after a lost reply: what it made is the answer.
  if call('HGET', P .. 'job:' .. ARGS.id, 'eb') == REPLICA .. ':' .. ARGS.n then
    return reply(parts(load(ARGS.id)))
  end
  return reply(false)
end
if ARGS.blob and not keep(ARGS.blob, job.id, ARGV[6]) then
  return {'refused', 'blob_gone'}
end
local started = job.sa
local replica = job.cb
local changes = end_attempt(job, ARGS.status == 'c' and 'completed' or 'failed', ARGS.kind, ARGS.upstream_ms)
terminal(job, changes, ARGS.status, ARGS.ttl)
if ARGS.status == 'c' then
  changes.sg, changes.pg = false, 1
end
changes.rb = ARGS.blob and ARGS.blob.id
changes.eb = REPLICA .. ':' .. ARGS.n
call('SET', P .. 'end:' .. job.id, ARGV[5])
local touched = {}
let_go(job, replica, touched)
write(job, changes)
count_service(job.up, NOW - started)
if ARGS.kind ~= 'rate_limit' then
  lift(job.up, job.ep)
end
arrange_all(touched)
return reply(parts(job))
