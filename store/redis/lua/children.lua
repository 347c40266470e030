-- Children of a group, in order.
-- KEYS: [1] meta
-- ARGV: [4] {id, first: index, limit}
-- Returns: their parts; none when the group is unknown
-- Atomicity: reads only, one snapshot. O(limit).
-- needs: base moves lanes records remains
local parent = remains(ARGS.id)
if not parent or not parent.gr then
  return reply({})
end
local found, indexes = {}, {}
local total = tonumber(call('HGET', P .. 'group:' .. parent.id, 'total'))
for index = ARGS.first, min(ARGS.first + ARGS.limit, total) - 1 do
  indexes[#indexes + 1] = index
end
local entries = indexes[1] and call('HMGET', P .. 'entries:' .. parent.id, unpack(indexes)) or {}
for n, index in ipairs(indexes) do
  local entry = entries[n]
  local adopted = entry and cmsgpack.unpack(entry)
  local child = entry and unreleased(parent, index, entry) or load(entry and adopted[1] or parent.id .. '.' .. index)
  if child then
    found[#found + 1] = parts(child)
  end
end
return reply(found)
