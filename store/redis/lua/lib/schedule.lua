-- Delayed jobs: those whose time has come move into their lanes, a bounded portion a step.
local function promote(portion)
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'delayed', '-inf', NOW, 'LIMIT', 0, portion)) do
    local job = load(id)
    write(job, {dl = false})
    arrange(job.up)
  end
  arrange_all({})
end
