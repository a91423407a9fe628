-- The streams whose turns come next, for the caller to declare. A read of one message has seen them already.
local function hints(missed, served, spare)
  if width == 0 or (#tokens == 0 and not missed) then return '' end
  if missed or count > 1 or not served then return table.concat(ring(width), ',') end
  if undelivered[served] > 0 then spare[#spare + 1] = served end
  return table.concat(spare, ',')
end
