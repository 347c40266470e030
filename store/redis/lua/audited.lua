-- Clears the mark of jobs whose audit event the sinks have taken: retention may take them from now on.
-- KEYS: [1] meta
-- ARGV: [4] {ids}
-- Returns: ids of blobs that are no more, ids of those whose file is to be unlinked (of deleted jobs, which go now)
-- Atomicity: one step. A group is let go once the events of all its children are taken as well.
-- needs: base room moves lanes records bars slots executions groups blobs removal staged eviction
local BUDGET = 200

local blobs, files = {}, {}

-- An event of a group, the parent's or a child's, has been taken.
local function taken_of_group(parent)
  if parent.de then
    remove_forgotten(parent, BUDGET, blobs, files)
  elseif TERMINAL[parent.st] and not parent.ad then
    call('ZREM', P .. 'kept', parent.id)
    finish_indices(parent)
  end
end

for _, id in ipairs(ARGS.ids) do
  local job = load(id)
  if job and job.ad then
    local parent_id = parent_of(id)
    call('ZREM', P .. 'audit_due', id)
    amend(job, {ad = false})
    if parent_id then
      local group = group_of(parent_id)
      set_group(group, {due = group.due - 1})
      finish_indices(job)
      taken_of_group(load(parent_id))
    elseif job.gr then
      taken_of_group(job)
    elseif job.de then
      remove(job, blobs, files, true)
    else
      finish_indices(job)
    end
  end
end
return reply(blobs, files)
