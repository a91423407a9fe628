-- Hand out from one stream: first what was given back, then what is new, in order.
local function take_new(turn, most)
  -- Where all is to be taken, one more is asked for: what others put there must not hide what is still to come.
  local asked = undelivered[turn] <= most and most + 1 or most
  local entries, new = redis.call('XRANGE', keys[turn], '(' .. cursor[turn], '+', 'COUNT', asked), {}
  local more = #entries > most
  if more then entries[#entries] = nil end
  examined, undelivered[turn] = examined + #entries, undelivered[turn] - #entries
  for _, entry in ipairs(entries) do
    if #entry[2] > 4 and lapsed(entry[2]) then
      redis.call('XDEL', keys[turn], entry[1])
      gone, expired = gone + 1, expired + 1
    else
      new[#new + 1] = entry
      lease(turn .. ':' .. entry[1] .. first_holder)
    end
    cursor[turn] = entry[1]
  end
  if #new > 0 then first_time[#first_time + 1], first_time[#first_time + 2] = turn, new end
  if #entries < most or undelivered[turn] < 1 then
    -- Nothing new is left, so what the count still says must be given-back messages; the rest was deleted by others.
    local left = (any_returned and redis.call('ZCOUNT', returned, turn, turn) or 0) + (more and 1 or 0)
    gone, vanished = gone + undelivered[turn] - left, vanished + undelivered[turn] - left
    undelivered[turn] = left
  end
end
local function take(turn, most)
  if not undelivered[turn] then load_lens({turn}) end
  local wanted = found + most
  if any_returned then take_returned(turn, most) end
  if turn == LEGACY then
    take_legacy(wanted - found)
  elseif found < wanted then
    take_new(turn, wanted - found)
  end
  if undelivered[turn] <= 0 and not is_empty[turn] then
    emptied[#emptied + 1], is_empty[turn] = turn, true
  end
end
if prefer ~= '' then take_preferred(take) end
