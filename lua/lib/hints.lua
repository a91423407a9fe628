-- The streams whose turns come next, for the caller to declare. A read of one message has seen them already.
local hints = ''
local any = found > 0 and width > 0
if missed or any and (count > 1 or not served) then
  hints = table.concat(ring(math.max(width, 4)), ',')
elseif any then
  if undelivered[served] > 0 then spare[#spare + 1] = served end
  hints = table.concat(spare, ',')
end
