-- Moves a running job's lease to a free slot of another endpoint.
-- KEYS: [1] meta
-- ARGV: [4] {id, fence, replica, up, tried: shorts}   [5] capacities (see claim)
-- Returns: the URL of the new endpoint; "" when none is free; false when the claim is lost (both: nothing was changed)
-- Atomicity: one step: the old slot is freed and the new one taken together.
-- needs: base room moves lanes records bars slots
local job = held(ARGS.id, ARGS.fence, ARGS.replica)
if not job then
  return reply(false)
end
local pool = open_pool(ARGS.up, ARGV[5])
local cls = class_of(job.pr)
local barred = {[job.ep] = true}
for _, short in ipairs(ARGS.tried) do
  barred[short] = true
end
local endpoint = most_free(pool, barred)
if not endpoint or (cls == 'b' and pool.batch_left < 0) then
  return reply('')
end
local name = job.id .. ':' .. job.fe
free(job.up, job.ep, job.tn, name)
take(pool, endpoint, cls, job.tn, name, '+inf')
write(job, {ep = endpoint.short})
arrange(job.up)
return reply(endpoint.url)
