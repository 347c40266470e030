-- What a group has beside its records, taken away in portions: documents that were brought for it, children that are no
-- records. Adds to `blobs` what is no more, and to `files` what is to be unlinked.

-- The references of documents that no child came to name go. Gives what is left of the budget.
local function drop_brought(id, budget, blobs, files)
  local brought = P .. 'brought:' .. id
  local blob_id = budget > 0 and call('SPOP', brought)
  while blob_id do
    let_drop(blob_id, id, blobs, files)
    budget = budget - 1
    blob_id = budget > 0 and call('SPOP', brought)
  end
  return budget
end

-- Children that never were records go, and with them their references. Gives what is left of the budget.
local function drop_entries(id, budget, blobs, files)
  local entries, unborn = P .. 'entries:' .. id, P .. 'unborn:' .. id
  budget = drop_brought(id, budget, blobs, files)
  local index = budget > 0 and call('BITPOS', unborn, 1) or -1
  while index >= 0 do
    local fields = cmsgpack.unpack(call('HGET', entries, index))
    let_drop(fields[3], id .. '.' .. index, blobs, files)
    call('HDEL', entries, index)
    call('SETBIT', unborn, index, 0)
    budget = budget - 1
    index = budget > 0 and call('BITPOS', unborn, 1) or -1
  end
  return budget
end

-- What was staged and will not be made goes. Gives what is left of the budget: with some, all of it went.
local function drop_staged(id, budget, blobs, files)
  budget = drop_entries(id, budget, blobs, files)
  if budget > 0 then
    call('ZREM', P .. 'staging', id)
    call('UNLINK', P .. 'entries:' .. id, P .. 'unborn:' .. id, P .. 'group:' .. id)
  end
  return budget
end
