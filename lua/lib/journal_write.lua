-- What this call has stored, but not what an earlier one had.
local kept = tonumber(state[8] or '0')
--- @include lib/journal_entry
if journal_entry then
  local fresh, lengths, dues, owned, digits = {}, {}, {}, {}, {}
  for i = 1, count do
    local at = 11 + declared + (i - 1) * stride
    if keyed == 0 or not string.find(places[i], '-', 1, true) then
      local key, delay = ARGV[at + 1], stride == 6 and string.match(ARGV[at + 5], '^%d+')
      local size, nth = digits[#key] or string.format('%d', #key), #fresh + 1
      fresh[nth], digits[#key], lengths[nth], owned[nth] = places[i], size, size, key
      dues[nth] = delay and string.format('%.0f', now + delay) or ''
    end
  end
  if #fresh > 0 then
    local ids = string.format('%.0f|%.0f|', ms, before) .. table.concat(fresh, ',')
    local due = stride == 6 and table.concat(dues, ',') or ''
    journal_entry(#fresh, table.concat({
      string.rep('w', #fresh), ids, table.concat(lengths, ','), '', due, '', table.concat(owned),
    }, '\n'))
  end
end
