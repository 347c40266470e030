-- Ends what waited too long: queued jobs past their time in the queue, jobs of upstreams that nobody serves, jobs that
-- are held and forgotten.
-- KEYS: [1] meta
-- ARGV: [4] {served: upstreams, lives: ms that this word holds, portion, looks: jobs looked at, timeout: ms or nil, unserved: ms,
--           held: ms, ttl: result_ttl ms}
--       [5] outcome: queued too long   [6] outcome: upstream removed   [7] outcome: cancelled; all opaque
-- Returns: failed, cancelled
-- Atomicity: one step for the portion. O(lanes) beside it.
-- needs: base room moves lanes records bars slots executions groups
local failed, cancelled = 0, 0
for _, up in ipairs(ARGS.served) do
  call('ZADD', P .. 'served', 'GT', NOW + ARGS.lives, up)
end

-- Ready jobs of an upstream that have been queued for longer, by age in each number of each lane: one that is younger
-- than that, and all behind it, cannot have been. A delayed one is met when it is due.
local looks = ARGS.looks
local function end_late(up, bound, ended)
  for _, cls in ipairs(CLASSES) do
    local at = up .. ':' .. cls
    for _, tenant in ipairs(call('HKEYS', P .. 'heads:' .. at)) do
      local lane = P .. 'lane:' .. at .. ':' .. tenant
      local entry = call('ZRANGE', lane, 0, 0, 'WITHSCORES')
      while entry[1] and looks > 0 and failed < ARGS.portion do
        looks = looks - 1
        local job, score = load(entry[1]), tonumber(entry[2])
        if job.ca > NOW - bound then
          score = (floor(score / UNIT) + 1) * UNIT - 1 -- the rest of this number is younger still
        elseif queued_ms(job) > bound then
          give_up(job, 'f', ended, ARGS.ttl)
          failed = failed + 1
        end
        entry = call('ZRANGEBYSCORE', lane, string.format('(%.0f', score), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      end
    end
  end
end

local looked = {}
for _, cell in ipairs(call('HKEYS', P .. 'tally')) do
  local up, state = string.match(cell, '^[^|]*|([^|]*)|%a|(%a)$')
  if state == 'q' and up ~= '' and not looked[up] then
    looked[up] = true
    if tonumber(call('ZSCORE', P .. 'served', up) or 0) <= NOW then
      end_late(up, ARGS.unserved, ARGV[6])
    elseif ARGS.timeout then
      end_late(up, ARGS.timeout, ARGV[5])
    end
  end
end
local before = '(' .. (NOW - ARGS.held)
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'holds', '-inf', before, 'LIMIT', 0, ARGS.portion - failed)) do
  give_up(load(id), 'x', ARGV[7], ARGS.ttl)
  cancelled = cancelled + 1
end
arrange_all({})
return reply(failed, cancelled)
