-- Puts documents and children of a group to come where nobody sees them.
-- KEYS: [1] meta
-- ARGV: [4] {id: of the parent, lives: ms that this waits for more, rest: bytes that are brought beside these documents, max_stored,
--           children: [[index, job id] of one that is finished, or [index, up, priority, blob, ttl or false, callback: 1 or
--           false, first bytes of the document's digest (hex)]], blobs: documents, as create has them}
--       [5..] of each child its cold record, opaque ("" of a finished one), then of each document its bytes when they come
--       inline
-- Returns: indexes of children whose document or record is gone; bytes stored. Or {"refused", "stored" | "blob_gone"}
-- Atomicity: one step; refused, it leaves nothing. Run again it changes nothing.
-- needs: base moves lanes records blobs remains
local id = ARGS.id
local entries, brought = P .. 'entries:' .. id, P .. 'brought:' .. id
if load(id) then
  return reply({}, stored_bytes())
end
-- Whether the store answers for the bytes already: a step that is run again.
local function is_kept(blob)
  return call('EXISTS', P .. 'bytes:' .. blob.id) == 1 or call('HEXISTS', P .. 'blob:' .. blob.id, 'n') == 1
end

local size = ARGS.rest
for _, blob in ipairs(ARGS.blobs) do
  size = size + (is_kept(blob) and 0 or blob.stored)
  if blob.chunks > 0 and call('HEXISTS', P .. 'blob:' .. blob.id, blob.chunks - 1) == 0 then
    return {'refused', 'blob_gone'}
  end
end
if size > 0 and stored_bytes() + size > ARGS.max_stored then
  return {'refused', 'stored', stored_bytes()}
end
for n, blob in ipairs(ARGS.blobs) do
  if not is_kept(blob) then
    keep(blob, id, ARGV[4 + #ARGS.children + n])
    call('SADD', brought, blob.id)
  end
end

-- The child names its document: it takes over the reference of one that was brought, or has one of its own.
local function takes(blob_id, child_id)
  if call('SREM', brought, blob_id) == 1 then
    hand_on(blob_id, id, child_id)
    return true
  end
  return share(blob_id, child_id)
end

local gone = {}
for n, child in ipairs(ARGS.children) do
  local index, job_id = unpack(child)
  if call('HEXISTS', entries, index) == 0 then
    if #child == 2 then
      if load(job_id) then
        call('HSET', entries, index, cmsgpack.pack({job_id}))
      else
        gone[#gone + 1] = index
      end
    elseif takes(child[4], id .. '.' .. index) then
      local _, up, priority, blob_id, ttl, hook, digest = unpack(child)
      local entry = {up, priority, blob_id, ttl, hook, raw(digest) or false, ARGV[4 + n]}
      call('HSET', entries, index, cmsgpack.pack(entry))
      call('SETBIT', P .. 'unborn:' .. id, index, 1)
    else
      gone[#gone + 1] = index
    end
  end
end
call('ZADD', P .. 'staging', NOW + ARGS.lives, id)
return reply(gone, stored_bytes())
