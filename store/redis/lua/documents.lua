-- The stored documents that these name, for jobs of a tenant.
-- KEYS: [1] meta
-- ARGV: [4] {tenant, names: [job id, or false], digests: [first bytes of a document's digest (hex), or false]}
-- Returns: for each [blob id, cold record of a job that has it], or false
-- Atomicity: reads only, one snapshot. O(log n) for each.
-- needs: base moves lanes records remains
local LOOKED_AT = 20 -- jobs of one document, the latest first

local function of_job(id)
  local job = remains(id)
  if job and job.tn == ARGS.tenant and job.pb then
    return {job.pb, job.cold or call('GET', P .. 'cold:' .. id)}
  end
  return false
end

local function of_digest(digest)
  local index = P .. 'docs:' .. ARGS.tenant
  local members = call('ZREVRANGEBYLEX', index, '[' .. digest .. string.char(255), '[' .. digest, 'LIMIT', 0, LOOKED_AT)
  for _, member in ipairs(members) do
    local found = of_job(string.sub(member, #digest + 1))
    if found then
      return found
    end
  end
  return false
end

local found = {}
for n, name in ipairs(ARGS.names) do
  found[n] = name and of_job(name) or ARGS.digests[n] and of_digest(raw(ARGS.digests[n]))
end
return reply(found)
