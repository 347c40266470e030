-- What every script has: its time, its deadline, its key prefix, its effects, its reply.
--   KEYS[1] {prefix}:meta; all other keys carry the same tag
--   ARGV[1] clock: "+<ms>" is added to TIME, "=<ms>" is the instant itself (suites over virtual time)
--   ARGV[2] not_after, store ms: later than that the script does nothing and answers {"late"}
--   ARGV[3] the replica that calls;  ARGV[4] arguments, a msgpack map;  ARGV[5..] opaque bytes
-- Numbers that are stored stay below 2^53; an instant in ms has 13 digits, which `..` keeps exact.
local call = redis.call
local floor, max, min = math.floor, math.max, math.min
local P = string.sub(KEYS[1], 1, -5)
local REPLICA = ARGV[3]
local NOW
if string.sub(ARGV[1], 1, 1) == '=' then
  NOW = tonumber(string.sub(ARGV[1], 2))
else
  local time = call('TIME')
  NOW = time[1] * 1000 + floor(time[2] / 1000) + tonumber(ARGV[1])
end
if NOW > tonumber(ARGV[2]) then
  return {'late'}
end
local ARGS = cmsgpack.unpack(ARGV[4])

-- What this step makes known, to this replica in its reply and to the others through the stream.
local EFFECTS = {}

-- Parts of the records that this step ended and no execution did: for this replica alone, in its reply.
local ENDED = {}

local function effect(...)
  EFFECTS[#EFFECTS + 1] = {...}
end

local function reply(...)
  local packed = ''
  if #EFFECTS > 0 then
    packed = cmsgpack.pack(EFFECTS)
    local replicas = P .. 'replicas' -- of which this one may have been taken out, as dead
    if call('ZCARD', replicas) > (call('ZSCORE', replicas, REPLICA) and 1 or 0) then
      call('XADD', P .. 'wake', 'MAXLEN', '~', '10000', '*', 'r', REPLICA, 'e', packed)
    end
  end
  if #ENDED > 0 then
    return {'ended', packed, ENDED, ...}
  end
  return {'ok', packed, ...}
end
