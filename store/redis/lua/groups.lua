-- Does a portion of what steps have left to be done for groups: documents that no child named go, released children of
-- stopped groups end, windows open, groups that nobody is shown any more are taken away.
-- KEYS: [1] meta
-- ARGV: [4] {portion}
-- Returns: 1 when there may be more; ids of blobs that are no more; ids of those whose file is to be unlinked
-- Atomicity: one step for the portion; a crash leaves the rest for the next.
-- needs: base room moves lanes records bars slots executions groups blobs removal staged eviction
local LOOKED_AT = 20 -- groups

local blobs, files = {}, {}
local left = false
SETTLING = true

-- Gives whether there may be more to do for the group.
local function settle(id, portion)
  local parent = load(id)
  if drop_brought(id, portion, blobs, files) <= 0 then
    return true
  elseif not parent then
    return false
  end
  local group = group_of(id)
  if group.stop and group.at and not TERMINAL[parent.st] and end_released(group, portion) then
    return true
  elseif fill(parent, group, portion) then
    return true
  end
  settle_parent(parent, group)
  if not parent.de then
    return false
  end
  return remove_forgotten(parent, portion, blobs, files) <= 0
end

for _, id in ipairs(call('SRANDMEMBER', P .. 'unsettled', LOOKED_AT)) do
  if not left then
    left = settle(id, ARGS.portion)
    if not left then
      call('SREM', P .. 'unsettled', id)
    end
  end
end
arrange_all({})
return reply((left or call('EXISTS', P .. 'unsettled') == 1) and 1 or 0, blobs, files)
