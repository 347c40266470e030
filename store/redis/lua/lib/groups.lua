-- Groups: what a step of a child means for its group, and which children may run (rules: store/groups.py).
--   {p}:group:<id> has the group's numbers beside its parent's record: `total`, `most` (max_parallel), `fast` (fail_fast),
--   children by where they are: `held`, and by status `q p c f x`; `born`: how many have become records, `due`: how many
--   of their events have yet to be taken; `stop`: "f" stopped by a failure, "x" cancelled; `dropped`: when the held ones
--   were; `ttl` of the results; `old`: the group that it supersedes; `at`, `hid`, `gone`: how far passes over its children are.
--   {p}:entries:<id> has the children that are no records, by index: [up, priority, blob, ttl, hook, digest, cold], or
--   [job id] of one that was finished in the group before. Two bitmaps by index: {p}:unborn:<id>, those with an entry of
--   the first kind; {p}:window:<id>, records that have not ended.
--   What is too much for a step is done in portions behind it: {p}:unsettled names the groups (groups.lua).
local PORTION = 200
local CHUNK = 25 -- bytes of a bitmap that are looked at together
local FIELDS = {
  'total', 'most', 'fast', 'held', 'q', 'p', 'c', 'f', 'x', 'born', 'due', 'dropped', 'ttl', 'at', 'hid', 'gone', 'stop', 'old',
}
local NUMERIC = #FIELDS - 2
local KNOWN = {} -- groups by id
local SETTLING = false -- whether this step is itself one of those behind

local function group_of(id)
  local group = KNOWN[id]
  if not group then
    local values = call('HMGET', P .. 'group:' .. id, unpack(FIELDS))
    group = {id = id}
    for n, name in ipairs(FIELDS) do
      group[name] = n <= NUMERIC and tonumber(values[n] or nil) or n > NUMERIC and values[n] or nil
    end
    KNOWN[id] = group
  end
  return group
end

local function set_group(group, changes)
  local set = {'HSET', P .. 'group:' .. group.id}
  for name, value in pairs(changes) do
    group[name] = value
    set[#set + 1] = name
    set[#set + 1] = value
  end
  call(unpack(set))
end

-- There is more to do for a group than this step does.
local function mark(id)
  if call('SADD', P .. 'unsettled', id) == 1 and not SETTLING then
    effect('g')
  end
end

-- A held child becomes a job. It has been counted in the depth with its parent.
local function release(parent, group, index)
  local entries = P .. 'entries:' .. parent.id
  local up, priority, blob, ttl, hook, digest, cold = unpack(cmsgpack.unpack(call('HGET', entries, index)))
  call('HDEL', entries, index)
  call('SETBIT', P .. 'unborn:' .. parent.id, index, 0)
  call('SETBIT', P .. 'window:' .. parent.id, index, 1)
  set_group(group, {held = group.held - 1, q = group.q + 1, born = group.born + 1})
  local job = enrol(parent.id .. '.' .. index, {
    tn = parent.tn, up = up, pr = priority, pb = blob, rt = ttl or nil, hk = hook or nil, dg = digest or nil, ca = parent.ca,
  }, cold)
  count(job, 1)
  enter(job)
  RELEASED[up] = true
  return job
end

-- Release held children, in order, as far as the window has room, and no more than so many. Gives whether more might be.
local function fill(parent, group, most)
  if group.stop or parent.dl or TERMINAL[parent.st] then
    return false
  end
  local room = min(group.held, group.most - group.q - group.p)
  for _ = 1, min(room, most) do
    release(parent, group, call('BITPOS', P .. 'unborn:' .. parent.id, 1))
  end
  return room > most
end

local function begin(parent, progress)
  write(parent, {st = 'p', qm = queued_ms(parent), qa = false, da = false, dl = false, sa = NOW, pg = progress})
end

-- Write the parent as its children make it. One with adopted children alone begins before it is completed.
local function settle_parent(parent, group)
  local ended = group.c + group.f + group.x
  if TERMINAL[parent.st] then
    return
  end
  if ended == group.total and (not parent.wf or group.stop) then
    local status = group.stop == 'x' and 'x' or group.c == group.total and 'c' or 'f'
    if status == 'c' and parent.st == 'q' then
      begin(parent, 1)
    end
    local ran = parent.sa and max(0, NOW - parent.sa)
    local changes = {qm = queued_ms(parent), qa = false, da = false, dl = false, pm = ran}
    if status == 'c' then
      changes.pg = 1
    end
    write(parent, terminal(parent, changes, status, group.ttl))
    return
  end
  local progress = max(parent.pg or 0, ended / group.total)
  if parent.st == 'p' and progress ~= parent.pg then
    write(parent, {pg = progress})
  elseif parent.st == 'q' and group.p > 0 then
    begin(parent, progress)
  end
end

-- No child starts any more: those that are held are dropped. A group that a failure has stopped may still be cancelled.
local function stop(parent, group, why)
  count_unfinished(parent, -group.held)
  set_group(group, {
    stop = why, x = group.x + group.held, held = 0, dropped = group.dropped or NOW, at = 0,
  })
  effect('h', parent.id)
end

-- Whether the job is a child that must not start.
local function starts_no_more(id)
  local parent_id = parent_of(id)
  return parent_id and group_of(parent_id).stop
end

-- Released children of a stopped group end: those that wait, and of a cancelled one those that run. At most so many and
-- a chunk. Gives whether there may be more.
local function end_released(group, most)
  local window = P .. 'window:' .. group.id
  local ended, bytes = 0, nil
  repeat
    bytes = call('GETRANGE', window, group.at, group.at + CHUNK - 1)
    for n = 1, #bytes do
      local byte = string.byte(bytes, n)
      for place = 0, byte > 0 and 7 or -1 do
        if floor(byte / 2 ^ (7 - place)) % 2 == 1 then
          local job = load(group.id .. '.' .. (8 * (group.at + n - 1) + place))
          if job.st == 'q' or group.stop == 'x' then
            give_up(job, 'x', nil, 0)
            ended = ended + 1
          end
        end
      end
    end
    set_group(group, {at = group.at + #bytes})
  until #bytes < CHUNK or ended >= most
  return #bytes == CHUNK
end

-- Somebody ends the group.
local function cancel_group(parent)
  local group = group_of(parent.id)
  stop(parent, group, 'x')
  if end_released(group, PORTION) then
    mark(parent.id)
  end
  settle_parent(parent, group)
end

-- The window opens: what the parent waited for has come.
local function open_window(parent)
  local group = group_of(parent.id)
  if fill(parent, group, PORTION) then
    mark(parent.id)
  end
  settle_parent(parent, group)
end

-- A child is about to go back to the queue: in a stopped group it ends instead.
function GROUPS.returns(parent_id, job, changes)
  if group_of(parent_id).stop then
    changes.qa, changes.da, changes.dl = false, false, false
    terminal(job, changes, 'x', 0)
  end
end

-- A released child has gone from one status to another: its group follows, in the same step.
function GROUPS.child_moved(parent_id, job, before)
  local parent, group = load(parent_id), group_of(parent_id)
  local changes = {[before] = group[before] - 1, [job.st] = group[job.st] + 1}
  if TERMINAL[job.st] then
    changes.due = group.due + 1
    local _, index = parent_of(job.id)
    call('SETBIT', P .. 'window:' .. parent_id, index, 0)
  end
  set_group(group, changes)
  if group.fast and not group.stop and (job.st == 'f' or job.st == 'x') then
    stop(parent, group, 'f')
    if group.q > 0 then
      mark(parent_id)
    end
  end
  fill(parent, group, 1)
  settle_parent(parent, group)
end

function GROUPS.parent_moved(parent, before, delayed)
  if TERMINAL[parent.st] and not TERMINAL[before] then
    local group = group_of(parent.id)
    if group.held > 0 then
      stop(parent, group, 'f')
    end
    if parent.de then
      mark(parent.id)
    end
  elseif delayed and not parent.dl and parent.st == 'q' then
    open_window(parent)
  end
end
