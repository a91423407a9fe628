-- Hand out from one stream, in the order of its line: what was given back or let in beside what is new.
local function take_new(turn, most)
  -- Where all is to be taken, one more is asked for: what others put there must not hide what is still to come.
  local asked = undelivered[turn] <= most and most + 1 or most
  local entries, new = redis.call('XRANGE', keys[turn], '(' .. cursor[turn], '+', 'COUNT', asked), {}
  local more = #entries > most
  if more then entries[#entries] = nil end
  examined, undelivered[turn] = examined + #entries, undelivered[turn] - #entries
  for _, entry in ipairs(entries) do
    local counts = fair and entry[2][1] == 'K'
    if counts then leave(entry[2]) end
    if #entry[2] > 4 and lapsed(entry[2]) then
      redis.call('XDEL', keys[turn], entry[1])
      if log then log.body('x', turn, entry[1], entry[2], 0) end
      gone, expired = gone + 1, expired + 1
    else
      new[#new + 1] = entry
      lease(turn .. ':' .. entry[1] .. first_holder)
      if counts then board(turn .. ':' .. entry[1], entry[2]) end
    end
    cursor[turn] = entry[1]
  end
  if #new > 0 then first_time[#first_time + 1], first_time[#first_time + 2] = turn, new end
  if #entries < most or undelivered[turn] < 1 then
    -- Nothing new is left, so what the count still says must be waiting in line; the rest was deleted by others.
    local left = (any_returned and redis.call('ZCOUNT', returned, turn * PLACES, turn * PLACES + PLACES - 1) or 0) + (more and 1 or 0)
    gone, vanished = gone + undelivered[turn] - left, vanished + undelivered[turn] - left
    undelivered[turn] = left
  end
end
-- How far the line goes before the next new message: what got in line later comes after it.
local function head_of_line(turn)
  local entry = turn ~= LEGACY and redis.call('XRANGE', keys[turn], '(' .. cursor[turn], '+', 'COUNT', 1)[1]
  return entry and tonumber(string.match(entry[1], '%-(%d+)$')) - 1 or PLACES - 1
end
local function take(turn, most)
  if not undelivered[turn] then load_lens({turn}) end
  local wanted = found + most
  if any_returned then take_returned(turn, fair and head_of_line(turn) or PLACES - 1, most) end
  if turn == LEGACY then
    take_legacy(wanted - found)
  elseif found < wanted then
    take_new(turn, wanted - found)
  end
end
if prefer ~= '' then take_preferred(take) end
