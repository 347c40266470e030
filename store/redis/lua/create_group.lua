-- Makes a group of what was staged: admits parent and children, all or none, and opens the window.
-- KEYS: [1] meta
-- ARGV: [4] {id, tenant, up: "", priority, run_at?, ttl?: the group's own, key?: SHA-256 of the idempotency key (hex), after: ids,
--           total, most: max_parallel, fast: 1 for fail_fast, supersedes?: id, result_ttl: ms, max_queued, max_stored,
--           max_finished, min_result: ms}
--       [5] the parent's cold record, opaque   [6] ""
--       [7], [8] with a key: its SHA-256 and the request's fingerprint, as raw bytes
--       [9] outcome of a job that follows one that did not complete, opaque
-- Returns: as create, without a position; also refused: staging_gone, state (parts of the group to supersede)
-- Atomicity: one step; refused, it leaves what was staged as it is. Up to 200 children are released in it, the others in
--       steps behind. Run again with the same id it answers with what it made.
-- needs: base moves lanes records bars slots executions groups remains admission births
local answer = known()
if answer then
  return answer
end
if not call('ZSCORE', P .. 'staging', ARGS.id) or call('HLEN', P .. 'entries:' .. ARGS.id) ~= ARGS.total then
  return {'refused', 'staging_gone'}
end
local old = ARGS.supersedes and remains(ARGS.supersedes)
if ARGS.supersedes and not old then
  return {'refused', 'staging_gone'}
elseif old and (not may_become(old.st, 's') or old.st == 's') then
  return {'refused', 'state', parts(old)}
end
local before, unknown = those_before()
if unknown then
  return {'refused', 'dependency', unknown}
end
local new = call('BITCOUNT', P .. 'unborn:' .. ARGS.id)
answer = refusal(ARGS.tenant, 0, 1 + new)
if answer then
  return answer
end
call('ZREM', P .. 'staging', ARGS.id)
local group = group_of(ARGS.id)
set_group(group, {
  total = ARGS.total, most = ARGS.most, held = new, q = 0, p = 0, c = ARGS.total - new, f = 0, x = 0, born = 0, due = 0,
  ttl = min(ARGS.result_ttl, ARGS.ttl or ARGS.result_ttl), fast = ARGS.fast, old = ARGS.supersedes,
})
if old then
  write(old, {st = 's', sf = old.st, sb = ARGS.id})
  if not old.ad then
    call('ZREM', P .. 'finished', old.id)
    call('ZREM', P .. 'expiring', old.id)
    call('ZADD', P .. 'kept', old.fa, old.id)
  end
end
local job = born(nil, ARGV[5])
amend(job, {gr = 1})
if ARGS.key then
  amend(job, {ik = ARGV[7], fp = ARGV[8]})
  call('SET', P .. 'idem:' .. job.tn .. ':' .. ARGS.key, job.id)
end
count_unfinished(job, new)
settle(job, before, ARGV[9], ARGS.result_ttl)
if not job.dl and not TERMINAL[job.st] then
  open_window(job)
end
if call('EXISTS', P .. 'brought:' .. job.id) == 1 then
  mark(job.id)
end
arrange_all({})
return reply(parts(job), 0, false, stored_bytes())
