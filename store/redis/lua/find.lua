-- What an idempotency key made.
-- KEYS: [1] meta
-- ARGV: [4] {tenant, key: SHA-256 of the key (hex)}
-- Returns: parts of the record; [job id, when it expired]; or false when the key is unknown
-- Atomicity: reads only, one snapshot.
-- needs: base moves lanes records remains
local id = call('GET', P .. 'idem:' .. ARGS.tenant .. ':' .. ARGS.key)
if not id then
  return reply(false)
end
local job, expired_at = remains(id)
return reply(job and parts(job) or expired_at and {id, expired_at} or false)
