-- Records: the hash of hot fields, and the one function that changes it.
--   Statuses are letters (moves); classes are "i" and "b"; an absent field is None, 0 or false.
--   Texts are fields of their own. Numbers lie together in three, as msgpack lists in the order below, false for what is
--   absent: a list is read in the time of one field. No value has more than 64 bytes, so that the hash stays compact.
--   Trailing ones that are absent are left out.
--   `load` gives a table of all by their two letters, with `id`, and `packs`: the lists as they are stored; the same
--   table for the same id, so that all parts of a script see what a step has made of a record.
--   `write` stamps version, change and time, and keeps lanes, schedule, tally, depth and indices in step; what a child's
--   step means for its group it leaves to GROUPS, which lib/groups.lua fills.
--   A child's id is "<id of the parent>.<index>". It has no `xa` of its own: it shares its parent's life. A parent (gr)
--   stands in no lane.
local TEXTS = {'st', 'tn', 'up', 'pb', 'sg', 'cb', 'sb', 'sf', 'ep', 'rb', 'ik', 'fp', 'dg'}
local SHOWN = 8 -- the first ones
local PACKS = {'n', 't', 'u'}
local NUMBERS = {
  {'pr', 'sq', 'cg', 'vs', 'pg', 'dl', 'at', 'cr', 'fe', 'qm', 'pm', 'um', 'ad', 'wf', 'av', 'de', 'hk', 'gr'},
  {'ca', 'ua', 'qa', 'da', 'ra', 'hd'},
  {'sa', 'ce', 'fa', 'xa', 'bs', 'rt'},
}
local PACK_OF = {
  pr = 1, sq = 1, cg = 1, vs = 1, pg = 1, dl = 1, at = 1, cr = 1, fe = 1, qm = 1, pm = 1, um = 1, ad = 1, wf = 1, av = 1, de = 1, hk = 1,
  gr = 1,
  ca = 2, ua = 2, qa = 2, da = 2, ra = 2, hd = 2,
  sa = 3, ce = 3, fa = 3, xa = 3, bs = 3, rt = 3,
}

local GROUPS = {}
local LOADED = {} -- records by id
local RELEASED = {} -- upstreams of the children that this step has released

-- The group that a child's id names, and the child's place; nil for any other id.
local function parent_of(id)
  if string.find(id, '.', 1, true) then
    local parent_id, index = string.match(id, '^(.+)%.(%d+)$')
    if index == '0' or index and string.byte(index) ~= 48 then
      return parent_id, tonumber(index)
    end
  end
end

local function load(id)
  if LOADED[id] then
    return LOADED[id]
  end
  local values = call('HMGET', P .. 'job:' .. id, 'n', 't', 'u', unpack(TEXTS))
  if not values[1] then
    return nil
  end
  local job = {id = id, packs = {values[1], values[2], values[3]}}
  for pack = 1, 3 do
    if values[pack] then
      local numbers = cmsgpack.unpack(values[pack])
      for n, name in ipairs(NUMBERS[pack]) do
        job[name] = numbers[n] or nil
      end
    end
  end
  for n, name in ipairs(TEXTS) do
    job[name] = values[3 + n] or nil
  end
  LOADED[id] = job
  return job
end

-- The record whose life this one shares: its parent's, or its own.
local function head_of_life(job)
  local parent_id = parent_of(job.id)
  return parent_id and load(parent_id) or job
end

-- The record, when the token is that of its running execution.
local function held(id, fence, replica)
  local job = load(id)
  if job and job.st == 'p' and job.fe == fence and job.cb == replica then
    return job
  end
end

-- Numbers of changes follow the time: a store that lost its latest ones, or all, repeats none of them.
local function next_change()
  local number = max(tonumber(call('HGET', KEYS[1], 'change') or 0) + 1, NOW * 1024)
  call('HSET', KEYS[1], 'change', number)
  return number
end

-- One list of numbers, packed; `other` has those that are to stand for the record's.
local function pack_numbers(job, pack, other)
  local numbers, last = {}, 0
  for n, name in ipairs(NUMBERS[pack]) do
    numbers[n] = other and other[name] or job[name] or false
    last = numbers[n] and n or last
  end
  for n = last + 1, #numbers do
    numbers[n] = nil
  end
  return cmsgpack.pack(numbers)
end

-- Change fields that no reader is shown, or whose change needs no new version. A value of false removes the field.
local function amend(job, changes)
  local set, gone = {'HSET', P .. 'job:' .. job.id}, {'HDEL', P .. 'job:' .. job.id}
  local stale = {}
  for name, value in pairs(changes) do
    local pack = PACK_OF[name]
    if pack then
      stale[pack] = true
    elseif value then
      set[#set + 1] = name
      set[#set + 1] = value
    elseif job[name] ~= nil then
      gone[#gone + 1] = name
    end
    job[name] = value or nil
  end
  for pack in pairs(stale) do
    job.packs[pack] = pack_numbers(job, pack)
    set[#set + 1] = PACKS[pack]
    set[#set + 1] = job.packs[pack]
  end
  if #set > 2 then
    call(unpack(set))
  end
  if #gone > 2 then
    call(unpack(gone))
  end
end

local function class_of(number)
  return number <= 40 and 'i' or 'b'
end

-- Bytes of their hex.
local function raw(digest)
  return digest and (string.gsub(digest, '..', function(pair) return string.char(tonumber(pair, 16)) end))
end

-- Record a new job. It is counted nowhere yet, and waits nowhere.
local function enrol(id, fields, cold)
  local job = {id = id, packs = {}}
  LOADED[id] = job
  fields.st, fields.vs, fields.qa, fields.ua = 'q', 1, NOW, NOW
  fields.ca = fields.ca or NOW
  fields.sq, fields.cg = call('HINCRBY', KEYS[1], 'seq', 1), next_change()
  amend(job, fields)
  call('SET', P .. 'cold:' .. id, cold)
  call('ZADD', P .. 'changes:' .. job.tn, job.cg, id)
  if job.dg then
    call('ZADD', P .. 'docs:' .. job.tn, 0, job.dg .. id)
  end
  effect('c', id, 1, job.tn, job.cg)
  return job
end

-- What a reader is given of a record: its numbers, the texts that are shown, what lies apart; of a parent its counts, of
-- a child that is no record (remains) 0.
local function parts(job)
  local ended = (job.fe or 0) - (job.st == 'p' and 1 or 0)
  local given = {job.id, job.packs[1], job.packs[2], job.packs[3] or false}
  for n = 1, SHOWN do
    given[4 + n] = job[TEXTS[n]] or false
  end
  local at = 4 + SHOWN
  if TERMINAL[job.st] and parent_of(job.id) then
    given[4] = pack_numbers(job, 3, {xa = head_of_life(job).xa})
  end
  given[at + 1] = job.cold or call('GET', P .. 'cold:' .. job.id)
  given[at + 2] = TERMINAL[job.st] and call('GET', P .. 'end:' .. job.id) or false
  given[at + 3] = ended > 0 and call('LRANGE', P .. 'trail:' .. job.id, 0, -1) or {}
  given[at + 4] = job.fe and not TERMINAL[job.st] and call('GET', P .. 'state:' .. job.id) or false
  given[at + 5] = job.ep and call('HGET', P .. 'endpoints', job.ep) or false
  given[at + 6] = job.gr and call('HMGET', P .. 'group:' .. job.id, 'total', 'held', 'q', 'p', 'c', 'f', 'x')
    or job.cold and 0 or false
  return given
end

local function is_ready(job)
  return job.st == 'q' and not job.dl and not job.gr
end

-- Whether events of children have yet to be taken.
local function children_due(parent)
  return (tonumber(call('HGET', P .. 'group:' .. parent.id, 'due')) or 0) > 0
end

-- Whether a group must be kept though its time may be over: events of children have yet to be taken, or the group in its
-- place is kept, which may list its children.
local function is_held(parent)
  return children_due(parent) or parent.st == 's' and call('EXISTS', P .. 'job:' .. parent.sb) == 1
end

local function is_expired(job)
  local head = head_of_life(job)
  return head.xa and head.xa < NOW and not head.ad and not (head.gr and is_held(head))
end

-- Whether the job was forgotten; a child with its group.
local function is_gone(job)
  return head_of_life(job).de
end

local function add(key, field, by)
  if by ~= 0 and call('HINCRBY', P .. key, field, by) == 0 then
    call('HDEL', P .. key, field)
  end
end

-- Count a record in (by = 1) or out (by = -1) of the tally.
local function count(job, by)
  local cell = table.concat({job.tn, job.up, class_of(job.pr), job.dl and 'd' or job.st}, '|')
  add('tally', cell, by)
  if TERMINAL[job.st] then
    add('tally', 'w|' .. cell, by * (job.qm or 0))
    add('tally', 'r|' .. cell, by * (job.pm or 0))
  end
end

-- So many jobs of the tenant more or less have not finished.
local function count_unfinished(job, by)
  add('depth', job.tn, by)
  add('depth', '*', by)
end

-- Put a queued job where it waits: into its lane, or outside until it is due (or those that it follows have ended).
local function enter(job)
  if is_ready(job) then
    join(JOBS, job.up, class_of(job.pr), job.tn, job.pr, job.sq, job.id)
  elseif job.dl and job.da then
    local earliest = call('ZRANGE', P .. 'delayed', 0, 0, 'WITHSCORES')[2]
    call('ZADD', P .. 'delayed', job.da, job.id)
    if not earliest or job.da < tonumber(earliest) then
      effect('d', job.da)
    end
  end
end

-- Take a record out of where it waits.
local function withdraw(job)
  if is_ready(job) then
    leave(JOBS, job.up, class_of(job.pr), job.tn, job.pr, job.id)
  elseif job.dl then
    call('ZREM', P .. 'delayed', job.id)
  end
end

-- A finished job is where retention finds it. `kept` has those that it does not take, or takes with another.
local function finish_indices(job)
  if job.ad then
    call('ZADD', P .. 'audit_due', job.fa, job.id)
  elseif parent_of(job.id) or job.gr and is_held(job) then
    call('ZADD', P .. 'kept', job.fa, job.id)
  else
    call('ZADD', P .. 'finished', job.fa, job.id)
    call('ZADD', P .. 'expiring', job.xa, job.id)
  end
end

-- The one place where a record changes.
local function write(job, changes)
  local parent_id = parent_of(job.id)
  if parent_id and changes.st == 'q' and job.st ~= 'q' then
    GROUPS.returns(parent_id, job, changes)
  end
  if changes.st and not may_become(job.st, changes.st) then
    error(job.id .. ': ' .. job.st .. ' may not become ' .. changes.st)
  end
  local before, delayed = job.st, job.dl
  local state, waits = delayed and 'd' or before, is_ready(job) or delayed
  local after = changes.st or job.st
  local dl = changes.dl
  if dl == nil then
    dl = job.dl or false
  end
  local moves = after ~= job.st or (dl and 'd' or after) ~= state
  if moves then
    count(job, -1)
    if waits then
      withdraw(job)
    end
  end
  changes.vs = job.vs + 1
  changes.cg = next_change()
  changes.ua = NOW
  amend(job, changes)
  call('ZADD', P .. 'changes:' .. job.tn, job.cg, job.id)
  if moves then
    count(job, 1)
    enter(job)
    if TERMINAL[job.st] and job.st ~= 's' then
      count_unfinished(job, -1)
      finish_indices(job)
      if job.hk then
        call('ZADD', P .. 'hook_due', NOW, job.id)
      end
      if call('EXISTS', P .. 'followers:' .. job.id) == 1 then
        call('SADD', P .. 'ended', job.id)
        effect('f')
      end
    end
  end
  effect('c', job.id, job.vs, job.tn, job.cg)
  if parent_id and job.st ~= before then
    GROUPS.child_moved(parent_id, job, before)
  elseif job.gr and moves then
    GROUPS.parent_moved(job, before, delayed)
  end
  if TERMINAL[job.st] and not TERMINAL[before] and not changes.eb then -- of what its execution ended its runner tells
    ENDED[#ENDED + 1] = parts(job)
  end
end
