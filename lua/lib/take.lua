-- Hand out from one stream, in the order of its line: what was given back or let in beside what is new.
local function take_new(turn, most)
  -- Where all is to be taken, one more is asked for: what others put there must not hide what is still to come.
  local asked = undelivered[turn] <= most and most + 1 or most
  local entries, new = redis.call('XRANGE', keys[turn], '(' .. cursor[turn], '+', 'COUNT', asked), {}
  local more = #entries > most
  if more then entries[#entries] = nil end
  examined, undelivered[turn] = examined + #entries, undelivered[turn] - #entries
  for _, entry in ipairs(entries) do
    local fields = entry[2]
    local owner = fields[1] == 'K' and fields[2]
    local out = #fields < 5 or not lapsed(fields)
    if out then
      new[#new + 1] = entry
      lease(turn .. ':' .. entry[1] .. first_holder .. (owner and '::' .. owner or ''), owner)
    else
      redis.call('XDEL', keys[turn], entry[1])
      if log then log.body('x', turn, entry[1], entry[2], 0) end
      gone, expired = gone + 1, expired + 1
    end
    if fair and owner then pass(owner, out, turn) end
    cursor[turn] = entry[1]
  end
  if #new > 0 then first_time[#first_time + 1], first_time[#first_time + 2] = turn, new end
  if #entries < most or undelivered[turn] < 1 then
    -- Nothing new is left, so what the count still says must be waiting in line; the rest was deleted by others.
    if any_returned then leave_line() end
    local left = (any_returned and redis.call('ZCOUNT', returned, turn * PLACES, turn * PLACES + PLACES - 1) or 0) + (more and 1 or 0)
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
  elseif found < wanted and undelivered[turn] > 0 then
    take_new(turn, wanted - found)
  end
end
if prefer ~= '' then take_preferred(take) end
