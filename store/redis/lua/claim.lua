-- Takes the most urgent ready jobs, each with a slot, in one atomic step.
-- KEYS: [1] meta
-- ARGV: [4] {up, limit, ceiling, visibility ms, n: number of this claim, above: fences are to be above this one,
--           idle: ms that the replica counts as waiting}
--       [5] capacities: msgpack {endpoints: [[short, url, offered, slots]], reserved}
-- Returns: a list of [parts of the record, URL, ms it had been ready]; fewer than `limit` when nothing is left: the
--       replica then counts as waiting, and the next chance is made known to it.
-- Atomicity: one step. Run again with the same number (a lost reply) it gives the same answer, for four claims.
-- Children of a group that was stopped end when they are met, up to 200; then the next claim goes on.
-- O(log n) for each job taken; lanes of tenants at their bound are parked, so they are met once.
-- needs: base room moves lanes records bars slots executions groups schedule
local memory = P .. 'answers:' .. REPLICA
local found, taken = {}, {}
local ended = 0

local function begin(pool, cls, lane)
  local job = load(lane.head)
  local endpoint = most_free(pool)
  local own = job.ep and pool.by_short[job.ep]
  local resumes = job.ep and call('EXISTS', P .. 'state:' .. job.id) == 1
  if resumes and own and own.free > 0 then
    endpoint = own
  elseif job.av and job.ep then
    endpoint = most_free(pool, {[job.ep] = true}) or endpoint
  end
  if not resumes then
    spend_token(pool)
  end
  local waited = NOW - max(job.qa or job.ca, job.da or 0)
  local fence = max(job.fe or 0, ARGS.above) + 1
  take(pool, endpoint, cls, job.tn, job.id .. ':' .. fence, '+inf')
  serve(JOBS, job.up, cls, job.tn, job.pr, lane.pass)
  call('HDEL', P .. 'rows', pool.name .. ':' .. cls)
  call('ZADD', P .. 'claimed', NOW + ARGS.visibility, job.id)
  call('SADD', P .. 'held:' .. REPLICA, job.id)
  write(job, {
    st = 'p', qm = queued_ms(job), qa = false, da = false, at = (job.at or 0) + 1, fe = fence,
    cb = REPLICA, ce = NOW + ARGS.visibility, ep = endpoint.short, sa = NOW, sg = false, pg = 0, av = false,
  })
  found[#found + 1] = {parts(job), waited}
  taken[#taken + 1] = {job.id, job.fe, waited}
end

local place = ARGS.n % 4
local known = call('HGET', memory, place)
known = known and cmsgpack.unpack(known)
if known and known[1] == ARGS.n then
  for _, entry in ipairs(known[2]) do
    local job = held(entry[1], entry[2], REPLICA)
    if job then
      found[#found + 1] = {parts(job), entry[3]}
    end
  end
  return reply(found)
end

promote(200)
local pool = open_pool(ARGS.up, ARGV[5])
local exhausted = false
while #taken < ARGS.limit and not exhausted do
  local cls, lane, of_job = next_in_line(pool, true, ARGS.ceiling)
  if of_job and starts_no_more(lane.head) then
    exhausted = ended == PORTION
    if not exhausted then
      give_up(load(lane.head), 'x', nil, 0)
      ended = ended + 1
    end
  elseif of_job then
    begin(pool, cls, lane)
  elseif cls then
    offer(pool, cls, lane)
  else
    exhausted = true
  end
end
if exhausted then
  wait_for_chance(ARGS.up, ARGV[5], ARGS.idle)
  if ended == PORTION then
    effect('r', ARGS.up)
  end
else
  call('ZREM', P .. 'idle:' .. ARGS.up, REPLICA)
end
if #taken > 0 then
  call('HSET', memory, place, cmsgpack.pack({ARGS.n, taken}))
  call('PEXPIRE', memory, 3600000)
end
return reply(found)
