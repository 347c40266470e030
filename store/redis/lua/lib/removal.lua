-- Taking records away, with their references to stored bytes.

local function hex(digest)
  return (string.gsub(digest, '.', function(c) return string.format('%02x', string.byte(c)) end))
end

-- Nobody is shown the record any more; nor counts it. One that is hidden already is left as it is.
local function hide(job)
  if call('ZSCORE', P .. 'changes:' .. job.tn, job.id) then
    count(job, -1)
  end
  call('ZREM', P .. 'changes:' .. job.tn, job.id)
  call('ZREM', P .. 'jobs:' .. job.tn, string.format('%013.0f', job.ca) .. job.id)
  if job.dg then
    call('ZREM', P .. 'docs:' .. job.tn, job.dg .. job.id)
  end
end

-- One reference goes. Adds to `blobs` what is no more, and to `files` what is to be unlinked.
local function let_drop(blob_id, id, blobs, files, at_once)
  local gone, file = drop(blob_id, id, at_once)
  if gone then
    blobs[#blobs + 1] = blob_id
  end
  files[#files + 1] = file
end

-- The record and its bytes go. `at_once`: readers in the middle are cut. Adds to `blobs` and `files` as `let_drop`.
local function remove(job, blobs, files, at_once)
  for _, blob_id in pairs({job.pb, job.rb}) do
    let_drop(blob_id, job.id, blobs, files, at_once)
  end
  if job.hk and (job.de or not call('ZSCORE', P .. 'hook_due', job.id)) then
    call('ZREM', P .. 'hook_due', job.id)
    call('DEL', P .. 'attempts:' .. job.id, P .. 'letter:' .. job.id)
  end
  for _, index in ipairs({'finished', 'expiring', 'kept'}) do
    call('ZREM', P .. index, job.id)
  end
  local id = job.id
  LOADED[id] = nil
  call('DEL', P .. 'job:' .. id, P .. 'cold:' .. id, P .. 'end:' .. id, P .. 'trail:' .. id, P .. 'state:' .. id)
end
