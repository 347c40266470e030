-- Writes one chunk of a draft. It lives for an hour more, unless a record takes the blob first.
-- KEYS: [1] meta
-- ARGV: [4] {blob, index}   [5] the chunk, opaque
-- Returns: nothing
-- Atomicity: one step. Run again it writes the same; a blob that a record has taken is left as it is, so a chunk that
--       arrives late (over a connection long given up) neither changes nor shortens it.
-- needs: base
local DRAFT_MS = 3600000

local key = P .. 'blob:' .. ARGS.blob
if call('HEXISTS', key, 'n') == 0 then
  call('HSET', key, ARGS.index, ARGV[5])
  call('PEXPIRE', key, DRAFT_MS)
end
return reply()
