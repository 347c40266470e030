-- Where jobs stand in their queues.
-- KEYS: [1] meta
-- ARGV: [4] {jobs: [[id, up]], exact: up to which place a position is exact}
-- Returns: for each [position or false, parked 0 | 1, mean service ms of its upstream or false]
-- Atomicity: reads only, one snapshot. O(lanes of the upstream) for each job.
-- needs: base moves lanes records

local function ready_before(job)
  local number, total = job.pr, 0
  for _, cls in ipairs(class_of(number) == 'i' and {'i'} or {'i', 'b'}) do
    local at = job.up .. ':' .. cls
    for _, member in ipairs(call('ZRANGE', P .. 'act:' .. at, 0, -1)) do
      local lane = P .. 'lane:' .. at .. ':' .. string.sub(member, 36)
      total = total + call('ZCOUNT', lane, '-inf', '(' .. string.format('%.0f', number * UNIT))
      if total > ARGS.exact then
        return total
      end
    end
  end
  return total
end

-- The k-th entry of a lane (from 0) goes at the lane's pass + k strides: before this job's turn when that is less, or
-- equal and it is older.
local function beside(job)
  local at = job.up .. ':b'
  if class_of(job.pr) == 'i' then
    at = job.up .. ':i'
  end
  local low, high = job.pr * UNIT, job.pr * UNIT + UNIT - 1
  local passes = P .. 'pass:' .. at
  local own = P .. 'lane:' .. at .. ':' .. job.tn
  local total = call('ZCOUNT', own, low, '(' .. string.format('%.0f', low + job.sq))
  local turn = tonumber(call('HGET', passes, job.pr .. ':' .. job.tn)) + total * limits(job.tn).stride
  for _, member in ipairs(call('ZRANGE', P .. 'act:' .. at, 0, -1)) do
    local tenant = string.sub(member, 36)
    local pass = tenant ~= job.tn and tonumber(call('HGET', passes, job.pr .. ':' .. tenant) or nil)
    if pass and pass <= turn then
      local stride, lane = limits(tenant).stride, P .. 'lane:' .. at .. ':' .. tenant
      local before = math.ceil((turn - pass) / stride)
      total = total + min(before, call('ZCOUNT', lane, low, high))
      if (turn - pass) % stride == 0 then
        local tied = call('ZRANGEBYSCORE', lane, low, high, 'WITHSCORES', 'LIMIT', before, 1)[2]
        if tied and tonumber(tied) - low < job.sq then
          total = total + 1
        end
      end
    end
    if total > ARGS.exact then
      return total
    end
  end
  return total
end

-- Beyond the exact ones: from lane lengths.
local function from_lengths(job)
  local total = 0
  for _, cls in ipairs(class_of(job.pr) == 'i' and {'i'} or {'i', 'b'}) do
    local at = job.up .. ':' .. cls
    for _, tenant in ipairs(call('HKEYS', P .. 'heads:' .. at)) do
      total = total + call('ZCARD', P .. 'lane:' .. at .. ':' .. tenant)
    end
  end
  return max(ARGS.exact + 1, total - 1)
end

local answers = {}
for n, asked in ipairs(ARGS.jobs) do
  local job = load(asked[1])
  local mean = call('HGET', P .. 'means', asked[2])
  local position, parked = false, 0
  if job and is_ready(job) then
    local head = call('HGET', P .. 'heads:' .. job.up .. ':' .. class_of(job.pr), job.tn)
    if head == 'P' then
      parked = 1
    else
      position = ready_before(job)
      if position <= ARGS.exact then
        position = position + beside(job)
      end
      if position > ARGS.exact then
        position = from_lengths(job)
      end
    end
  end
  answers[n] = {position, parked, mean}
end
return reply(answers)
