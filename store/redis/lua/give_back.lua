-- The call of an execution that was told to stop is over: its slot goes to whoever is next.
-- KEYS: [1] meta
-- ARGV: [4] {id, fence}
-- Returns: 1
-- Atomicity: one step. A claim that is not void is not touched.
-- needs: base room moves lanes records bars slots executions
local touched = {}
drop_void(ARGS.id .. ':' .. ARGS.fence, touched)
arrange_all(touched)
return reply(1)
