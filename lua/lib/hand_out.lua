-- Hand out a message that was delivered before, or lay in the store: the client makes of its head the lease's token.
local function hand_out(place, id, deliveries, last_error, fields, hand, since)
  local token = place .. ':' .. id .. ':' .. deliveries
  local owner = place ~= 'l' and fields[1] == 'K' and fields[2]
  again[#again + 1] = {owner and token .. ':' .. hand or token, last_error, fields, since}
  lease(token .. ':' .. holder .. (owner and ':' .. hand .. ':' .. owner or ''), owner)
end
