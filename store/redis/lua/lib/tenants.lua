-- Tenants that have jobs.

local function all_tenants()
  local seen, tenants = {}, {}
  for _, cell in ipairs(call('HKEYS', P .. 'tally')) do
    local tenant = string.match(cell, '^([^|]*)|[^|]*|%a|%a$')
    if tenant and not seen[tenant] then
      seen[tenant] = true
      tenants[#tenants + 1] = tenant
    end
  end
  return tenants
end
