-- A cheap look before a body is read: would a job of this tenant be admitted now? The exact check is create's.
-- KEYS: [1] meta
-- ARGV: [4] {tenant, max_queued, max_stored, max_finished, min_result: ms}
-- Returns: bytes stored; or {"refused", ...} as create
-- Atomicity: reads only.
-- needs: base moves lanes records remains admission
local refused = refusal(ARGS.tenant, 0, 1)
if refused then
  return refused
end
return reply(stored_bytes())
