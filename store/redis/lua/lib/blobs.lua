-- Blobs: stored bytes and who names them.
--   {p}:bytes:<id> is a small blob: a string, for a hash with it would take half a KiB more. Once a second
--   job names it, {p}:sharers:<id> has those that do: FIRST stands for whoever named it when nobody else did.
--   {p}:blob:<id> is any other: its bytes ("0", "1", ... chunks, or "f" when they lie in a file), "c" chunks, "s" stored
--   size, "z" when compressed, "n" references, and one empty field for each job that names it.
local READERS_MS = 300000 -- how long a reader in the middle may go on
local FIRST = '*'

-- A record takes a blob that its replica brought: as bytes (ARGV[inline]), or as chunks and files written before.
-- Gives false when what was written before is gone.
local function keep(blob, id, inline)
  if blob.inline then
    call('SET', P .. 'bytes:' .. blob.id, inline)
    call('HINCRBY', KEYS[1], 'stored', blob.stored)
    return true
  end
  local key = P .. 'blob:' .. blob.id
  if blob.file then
    call('HSET', key, 'f', 1)
  elseif call('HEXISTS', key, blob.chunks - 1) == 0 then
    return false
  else
    call('HSET', key, 'c', blob.chunks)
    call('PERSIST', key)
  end
  call('HSET', key, 's', blob.stored, 'n', 1, id, '')
  if blob.zstd then
    call('HSET', key, 'z', 1)
  end
  call('HINCRBY', KEYS[1], 'stored', blob.stored)
  return true
end

-- Another record names a blob too; false when it is gone.
local function share(blob_id, id)
  if call('EXISTS', P .. 'bytes:' .. blob_id) == 1 then
    local sharers = P .. 'sharers:' .. blob_id
    if call('EXISTS', sharers) == 0 then
      call('SADD', sharers, FIRST)
    end
    call('SADD', sharers, id)
    return true
  end
  local key = P .. 'blob:' .. blob_id
  local references = tonumber(call('HGET', key, 'n'))
  if not references or references == 0 then
    return false
  end
  if call('HSET', key, id, '') == 1 then
    call('HINCRBY', key, 'n', 1)
  end
  return true
end

-- One takes over the other's reference.
local function hand_on(blob_id, from, id)
  local key, sharers = P .. 'blob:' .. blob_id, P .. 'sharers:' .. blob_id
  if call('EXISTS', sharers) == 1 then
    if call('SREM', sharers, from) == 0 then
      call('SREM', sharers, FIRST)
    end
    call('SADD', sharers, id)
  elseif call('HDEL', key, from) == 1 then
    call('HSET', key, id, '')
  end
end

-- A record names a small blob no more. Gives whether its bytes went.
local function drop_small(blob_id, id)
  local key, sharers = P .. 'bytes:' .. blob_id, P .. 'sharers:' .. blob_id
  if call('SREM', sharers, id) == 0 then
    call('SREM', sharers, FIRST)
  end
  if call('EXISTS', sharers) == 1 then
    return false
  end
  call('HINCRBY', KEYS[1], 'stored', -call('STRLEN', key))
  call('UNLINK', key)
  return true
end

-- A record names a blob no more. The step that drops the last reference lets the bytes go. `at_once`: also those that
-- a reader is in the middle of. Gives whether they went, and the name of a file that its replica is to unlink.
local function drop(blob_id, id, at_once)
  local key = P .. 'blob:' .. blob_id
  if call('EXISTS', P .. 'bytes:' .. blob_id) == 1 then
    return drop_small(blob_id, id)
  elseif call('HDEL', key, id) == 0 or call('HINCRBY', key, 'n', -1) > 0 then
    return false
  end
  local found = call('HMGET', key, 's', 'f')
  call('HINCRBY', KEYS[1], 'stored', -tonumber(found[1]))
  if at_once then
    call('UNLINK', key)
  else
    call('PEXPIRE', key, READERS_MS)
  end
  return true, found[2] and blob_id or nil
end
