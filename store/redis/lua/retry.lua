-- Lets a new job take the place of a finished one.
-- KEYS: [1] meta
-- ARGV: [4] {old: its id, id, tenant, up, priority, run_at?, ttl?, digest: first bytes of the
--           payload's (hex), blob: its id, max_queued, max_stored,
--           max_finished, min_result: ms}
--       [5] the new cold record, opaque
-- Returns: parts of the new record; false when the old job is unknown; or {"refused", code, ...} as create, and state
--       (parts of the old one), payload_gone
-- Atomicity: one step: the old record is superseded, the new one queued, the payload shared. Run again with the same
--       id it answers with what it made.
-- needs: base moves lanes records bars slots executions blobs remains admission births
local old = remains(ARGS.old)
if not old then
  return reply(false)
end
if old.sb == ARGS.id then
  return reply(parts(load(ARGS.id)))
end
if not may_become(old.st, 's') or old.st == 's' or old.gr or parent_of(old.id) then
  return {'refused', 'state', parts(old)}
end
local answer = refusal(ARGS.tenant, 0, 1)
if answer then
  return answer
end
if not share(ARGS.blob, ARGS.id) then
  return {'refused', 'payload_gone', ARGS.old}
end
write(old, {st = 's', sf = old.st, sb = ARGS.id})
local job = born(ARGS.blob, ARGV[5])
settle(job, {}, '', 0)
arrange(job.up)
return reply(parts(job))
