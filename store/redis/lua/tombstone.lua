-- What is left of an evicted job.
-- KEYS: [1] meta
-- ARGV: [4] {id}
-- Returns: [tenant, when it expired], or false
-- Atomicity: reads only, one snapshot.
-- needs: base moves lanes records remains
local job, expired_at = remains(ARGS.id)
if job or not expired_at then
  return reply(false)
end
local expired = load(ARGS.id)
return reply({expired and expired.tn or call('HGET', P .. 'tomb:' .. ARGS.id, 'tenant'), expired_at})
