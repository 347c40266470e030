-- Extends the claims of a replica and the leases of its calls, and stores progress.
-- KEYS: [1] meta
-- ARGV: [4] {claims: [[id, fence, stage or "", progress]], visibility: ms, complete,
--           calls: [[name, up, short, "i" | "b", tenant]]}
-- Returns: ids of claims lost, names of leases lost
-- Atomicity: one step. A complete renewal lists all the replica holds: a claim that two complete ones in a row do not
--       list is one that it never learned of, and is handed back uncounted.
-- needs: base room moves lanes records bars slots executions groups
local lost, gone = {}, {}
local listed = {}
local expiry = NOW + ARGS.visibility
for _, claim in ipairs(ARGS.claims) do
  local id, fence, stage, progress = unpack(claim)
  local job = held(id, fence, REPLICA)
  if not job then -- a newer claim of this job is not listed by an older token
    lost[#lost + 1] = id
  else
    listed[id] = true
    call('ZADD', P .. 'claimed', expiry, id)
    if stage ~= '' then
      write(job, {sg = stage, pg = max(job.pg or 0, min(1, progress)), ce = expiry})
    else
      amend(job, {ce = expiry})
    end
  end
end
for _, lease in ipairs(ARGS.calls) do
  local name, up, short, cls, tenant = unpack(lease)
  local key = P .. 'slots:' .. up .. ':' .. short
  if call('ZSCORE', key, name) then
    call('ZADD', key, expiry, name)
    call('ZADD', P .. 'busy:' .. tenant, expiry, name)
    call('SADD', P .. 'callers', tenant)
    if cls == 'b' then
      call('ZADD', P .. 'batch:' .. up, expiry, name)
    end
  else
    gone[#gone + 1] = name
  end
end
local touched = {}
if ARGS.complete then
  local unlisted = P .. 'unlisted:' .. REPLICA
  for _, id in ipairs(call('SMEMBERS', P .. 'held:' .. REPLICA)) do
    if listed[id] then
      call('SREM', unlisted, id)
    elseif call('SADD', unlisted, id) == 0 then
      local job = load(id)
      if job and job.cb == REPLICA then
        effect('l', id, REPLICA, job.fe)
        hand_back(job, touched)
      end
    end
  end
  call('PEXPIRE', unlisted, 3600000)
end
arrange_all(touched)
return reply(lost, gone)
