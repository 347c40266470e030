-- What is left of evicted jobs, and the end of a group: children go before their parent, in portions. Adds to `blobs` what
-- is no more, and to `files` what is to be unlinked.

-- An evicted job leaves a tombstone.
local function entomb(job, at)
  local stone = P .. 'tomb:' .. job.id
  call('ZADD', P .. 'tombs', at, job.id)
  call('HSET', stone, 'tenant', job.tn)
  if job.ik then
    call('HSET', stone, 'key', hex(job.ik))
  end
end

-- A group is gone: the one that it superseded, whose children it may have listed, is held by it no more.
local function free_predecessor(parent, group)
  local old = group.old and load(group.old)
  if old then
    amend(old, {xa = max(old.xa, parent.xa)})
    if not old.ad then
      call('ZREM', P .. 'kept', old.id)
      finish_indices(old)
    end
  end
end

-- A group that nobody is shown any more goes: children first, each with a tombstone if the parent has one. Gives what is
-- left of the budget (with some, all of it went), and how many records went.
local function remove_group(parent, budget, blobs, files)
  local group, at = group_of(parent.id), call('ZSCORE', P .. 'tombs', parent.id)
  budget = drop_entries(parent.id, budget, blobs, files)
  local index, removed = group.gone or 0, 0
  while budget > 0 and index < group.total do
    local child = load(parent.id .. '.' .. index)
    if child then
      if at then
        entomb(child, at)
      end
      hide(child)
      remove(child, blobs, files, not at)
      removed = removed + 1
    end
    budget = budget - (child and 1 or 0.1)
    index = index + 1
  end
  set_group(group, {gone = index})
  if budget <= 0 then
    return budget, removed
  end
  hide(parent)
  remove(parent, blobs, files, not at)
  free_predecessor(parent, group)
  local id = parent.id
  call('UNLINK', P .. 'group:' .. id, P .. 'entries:' .. id, P .. 'unborn:' .. id, P .. 'window:' .. id)
  call('SREM', P .. 'unsettled', id)
  return budget, removed + 1
end

-- Children of a deleted group are counted no more. Gives what is left of the budget: with some, that holds of all.
local function hide_children(parent, budget)
  local group = group_of(parent.id)
  local index = group.hid or 0
  while budget > 0 and index < group.total do
    local child = load(parent.id .. '.' .. index)
    if child then
      hide(child)
    end
    budget = budget - (child and 1 or 0.1)
    index = index + 1
  end
  set_group(group, {hid = index})
  return budget
end

-- A deleted group that has ended is hidden with its children, and goes once all its events are taken, as far as the budget
-- lets it; the rest in steps behind. Gives what is left of the budget.
local function remove_forgotten(parent, budget, blobs, files)
  if not TERMINAL[parent.st] then
    return budget
  elseif parent.ad or children_due(parent) then
    hide(parent)
    budget = hide_children(parent, budget)
  else
    budget = remove_group(parent, budget, blobs, files)
  end
  if budget <= 0 then
    mark(parent.id)
  end
  return budget
end
