-- Admits a job: checks the bounds, counts it, records it and queues it.
-- KEYS: [1] meta
-- ARGV: [4] {id, tenant, up, priority, run_at?, ttl?: the job's own, digest: first bytes of
--           the document's (hex), key?: SHA-256 of the idempotency key (hex),
--           after: ids, blob, result_ttl: ms, max_queued, max_stored, max_finished, min_result: ms}
--       [5] the cold record, opaque   [6] the document's bytes when they come inline
--       [7], [8] with a key: its SHA-256 and the request's fingerprint, as raw bytes
--       [9] outcome of a job that follows one that did not complete, opaque
-- Returns: {"ok", effects, parts, replayed 0 | 1, position or false, bytes stored}, or {"refused", code, ...} with code
--       queue (depth, bound), tenant (depth, bound), stored (bytes), finished (jobs), key (job id of another request),
--       expired (job id, when), dependency (job id), blob_gone
-- Atomicity: one step; refused, it leaves nothing. Run again with the same id it answers with what it made.
-- needs: base moves lanes records bars slots executions blobs remains admission births
local answer = known() or refusal(ARGS.tenant, ARGS.blob.stored, 1)
if answer then
  return answer
end
local before, unknown = those_before()
if unknown then
  return {'refused', 'dependency', unknown}
end
if not keep(ARGS.blob, ARGS.id, ARGV[6]) then
  return {'refused', 'blob_gone'}
end
local idle = call('EXISTS', P .. 'act:' .. ARGS.up .. ':i', P .. 'act:' .. ARGS.up .. ':b') == 0
local job = born(ARGS.blob.id, ARGV[5])
if ARGS.key then
  amend(job, {ik = ARGV[7], fp = ARGV[8]})
  call('SET', P .. 'idem:' .. job.tn .. ':' .. ARGS.key, job.id)
end
settle(job, before, ARGV[9], ARGS.result_ttl)
arrange(job.up)
return reply(parts(job), 0, idle and is_ready(job) and 0, stored_bytes())
