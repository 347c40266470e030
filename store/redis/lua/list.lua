-- One portion of jobs, newest first, below a cursor.
-- KEYS: [1] meta
-- ARGV: [4] {tenant, or "" for everybody's, before: "<created_at, 13 digits><id>" or "", portion, statuses: letters or "",
--           after: change or 0, since: ms or 0, finished: ms or 0}
-- Returns: the parts that match; the cursor to go on from, or "" at the end; the store's change number;
--       its time
-- Atomicity: reads only, one snapshot of the portion. O(portion); for everybody's O(portion + tenants).
-- needs: base moves lanes records tenants
local LEAST = 10 -- of each tenant's jobs: with less a portion hardly reaches down where there are many tenants

local function matches(job)
  return not job.de and not is_expired(job)
    and (ARGS.statuses == '' or string.find(ARGS.statuses, job.st, 1, true))
    and job.cg > ARGS.after and job.ua >= ARGS.since
    and (ARGS.finished == 0 or (job.fa and job.fa < ARGS.finished))
end

-- Of each tenant's jobs an equal share is looked at. Of the tenants that have more, the one whose share ends newest says
-- how far the portion reaches: down to there all jobs of everybody are known.
local tenants = ARGS.tenant ~= '' and {ARGS.tenant} or all_tenants()
local top = ARGS.before == '' and '+' or '(' .. ARGS.before
local share = max(LEAST, floor(ARGS.portion / max(1, #tenants)))
local members, cursor = {}, ''
for _, tenant in ipairs(tenants) do
  local own = call('ZREVRANGEBYLEX', P .. 'jobs:' .. tenant, top, '-', 'LIMIT', 0, share)
  for _, member in ipairs(own) do
    members[#members + 1] = member
  end
  if #own == share and own[share] > cursor then
    cursor = own[share]
  end
end
if #tenants > 1 then
  table.sort(members, function(one, other) return one > other end)
end
local found = {}
for _, member in ipairs(members) do
  if member < cursor then
    break
  end
  local job = load(string.sub(member, 14))
  if job and matches(job) then
    found[#found + 1] = parts(job)
  end
end
return reply(found, cursor, tonumber(call('HGET', KEYS[1], 'change') or 0), NOW)
