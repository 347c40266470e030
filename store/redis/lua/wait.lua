-- Says that waiting calls of a replica still wait.
-- KEYS: [1] meta
-- ARGV: [4] {waiting: [[name, up]], ups: [up], patience: ms}   [5..] capacities of each of these upstreams (see claim)
-- Returns: names of those whose place in line is gone: offered, or expired
-- Atomicity: one step. Whatever slots are free go to whoever is next.
-- needs: base room lanes bars slots
local gone = {}
for _, waiter in ipairs(ARGS.waiting) do
  local name, up = unpack(waiter)
  local alive = P .. 'alive:' .. up
  if call('ZSCORE', alive, name) then
    call('ZADD', alive, NOW + ARGS.patience, name)
  else
    gone[#gone + 1] = name
  end
end
for n, up in ipairs(ARGS.ups) do
  arrange(up, open_pool(up, ARGV[4 + n]))
end
return reply(gone)
