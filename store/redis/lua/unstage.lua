-- Forgets what was staged for a group that will not be made; a bounded portion.
-- KEYS: [1] meta
-- ARGV: [4] {id: of the parent, portion}
-- Returns: 1 when there is more; ids of blobs that are no more; ids of those whose file is to be unlinked
-- Atomicity: one step for the portion. After the first nobody can make the group: what is left goes by itself.
-- needs: base room moves lanes records blobs removal staged
local blobs, files = {}, {}
if not call('ZSCORE', P .. 'staging', ARGS.id) then
  return reply(0, blobs, files)
end
call('ZADD', P .. 'staging', 0, ARGS.id)
local left = drop_staged(ARGS.id, ARGS.portion, blobs, files)
return reply(left > 0 and 0 or 1, blobs, files)
