-- Reads one chunk of a blob. A blob on its way out stays as long as somebody reads it.
-- KEYS: [1] meta
-- ARGV: [4] {blob, index}
-- Returns: the chunk, or false when it is gone
-- Atomicity: one step.
-- needs: base blobs
local key = P .. 'blob:' .. ARGS.blob
local chunk = call('HGET', key, ARGS.index)
if chunk and call('PTTL', key) >= 0 then
  call('PEXPIRE', key, READERS_MS)
end
return reply(chunk)
