-- Statuses as letters, and their legal moves: the table of store/job.py (a test compares the two).
--   q queued  p processing  h paused  i interrupted  c completed  f failed  x cancelled  s superseded
-- "d" is no status: the tally's name for a queued job that waits for its time.
local MOVES = {
  q = 'pxfhi',
  p = 'cfxqhi',
  h = 'qx',
  i = 'qx',
  c = 's',
  f = 's',
  x = 's',
  s = '',
}
local TERMINAL = {c = true, f = true, x = true, s = true}

local function may_become(from, to)
  return from == to or string.find(MOVES[from], to, 1, true) ~= nil
end
