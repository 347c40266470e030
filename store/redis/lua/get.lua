-- Records by id.
-- KEYS: [1] meta
-- ARGV: [4] {ids}
-- Returns: for each id its parts; a number: when it expired; or false when it is unknown
-- Atomicity: reads only, one snapshot.
-- needs: base moves lanes records remains
local found = {}
for n, id in ipairs(ARGS.ids) do
  local job, expired_at = remains(id)
  found[n] = job and parts(job) or expired_at or false
end
return reply(found)
