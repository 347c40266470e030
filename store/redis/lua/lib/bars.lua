-- Bars: endpoints that asked to be left alone for a while, and when somebody is to look at an upstream again.

-- Somebody is to look at an upstream again at this instant: a bar has ended, a token has come.
local function alarm(up, at)
  local earliest = call('ZRANGE', P .. 'alarms', 0, 0, 'WITHSCORES')[2]
  call('ZADD', P .. 'alarms', 'LT', at, up)
  if not earliest or at < tonumber(earliest) then
    effect('d', at)
  end
end

-- How many slots a barred endpoint offers of those it has: none, then one call alone.
local function offered(up, short, slots)
  local bar = call('HGET', P .. 'bars', up .. ':' .. short)
  if not bar then
    return slots
  end
  local left = tonumber(string.match(bar, '^%d+')) - NOW
  return left > 0 and 0 or min(slots, 1)
end

-- The endpoint of an attempt asked to be left alone: given ms, or 5 s doubled with each in a row, at most 60 s.
local function bar(up, short, for_ms)
  local field = up .. ':' .. short
  local before, row = string.match(call('HGET', P .. 'bars', field) or '0|0', '^(%d+)|(%d+)$')
  -- Calls that were in flight together are one bar: only one after its end is the next in a row.
  row = tonumber(row) + (tonumber(before) <= NOW and 1 or 0)
  local till = max(NOW + (for_ms or min(60000, 5000 * 2 ^ (row - 1))), tonumber(before))
  call('HSET', P .. 'bars', field, string.format('%.0f|%d', till, row))
  alarm(up, till)
end

-- An endpoint has answered: it may be called like any other, unless it asked to be left alone meanwhile.
local function lift(up, short)
  local field = up .. ':' .. short
  local found = call('HGET', P .. 'bars', field)
  if found and tonumber(string.match(found, '^%d+')) <= NOW then
    call('HDEL', P .. 'bars', field)
  end
end
