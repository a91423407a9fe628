-- What this call has stored, but not what an earlier one had.
local kept = tonumber(state[8] or '0')
if kept > 0 then
--- @include lib/journal_entry
  local fresh, lengths, dues, owned = {}, {}, {}, {}
  for i = 1, count do
    local at = 11 + declared + (i - 1) * stride
    if keyed == 0 or not string.find(places[i], '-', 1, true) then
      local key, delay = ARGV[at + 1], stride == 6 and string.match(ARGV[at + 5], '^%d+')
      fresh[#fresh + 1] = places[i]
      lengths[#fresh], owned[#fresh], dues[#fresh] = #key, key, delay and string.format('%.0f', now + delay) or ''
    end
  end
  if #fresh > 0 then
    local ids = string.format('%.0f|%.0f|', ms, before) .. table.concat(fresh, ',')
    local due = stride == 6 and table.concat(dues, ',') or ''
    journal_entry(#fresh, string.rep('w', #fresh), ids, table.concat(lengths, ','), '', due, '', table.concat(owned))
  end
end
