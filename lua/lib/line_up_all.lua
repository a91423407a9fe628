-- Many into the line at once, {handle, place, streams, turn if it stays in one, position} each: without a position behind all
-- that came so far, `true` is ahead of all.
--- @include lib/places
--- @include lib/parts
local turns_in = {}
local function turns_of_hand(hand)
  if turns_in[hand] then return turns_in[hand] end
  local turns, most = {}, tostring(streams)
  for number in string.gmatch(hand, '%d+') do
    local is_there = #number < #most or #number == #most and number < most
    turns[#turns + 1] = is_there and number or tostring(number % streams)
  end
  if #turns == 0 then turns[1] = '0' end -- something else wrote it: any stream will do, and its length is looked up, too
  turns_in[hand] = turns
  return turns
end
local function lengths_of(items)
  local lengths, missing, seen = {}, {}, {}
  local function note(turn)
    if seen[turn] then return end
    seen[turn], lengths[turn] = true, undelivered[turn]
    if not lengths[turn] then missing[#missing + 1] = turn end
  end
  for _, item in ipairs(items) do
    if item[4] or item[2] ~= 'd' then
      note(item[4] or item[2])
    else
      for _, turn in ipairs(turns_of_hand(item[3])) do note(turn) end
    end
  end
  in_parts(missing, function(from, upto)
    local found_lengths = redis.call('HMGET', lens, unpack(missing, from, upto))
    for at = from, upto do lengths[missing[at]] = tonumber(found_lengths[at - from + 1] or '0') end
  end)
  return lengths
end
local function line_up_all(items)
  if #items == 0 then return end
  local lengths, changed, scores, woken = lengths_of(items), {}, {}, {}
  for _, item in ipairs(items) do
    local turn = item[4] or item[2]
    if turn == 'd' then
      local turns = turns_of_hand(item[3])
      turn = turns[1]
      for at = 2, #turns do
        if lengths[turns[at]] < lengths[turn] then turn = turns[at] end
      end
    end
    if lengths[turn] == 0 then woken[#woken + 1], woken[#woken + 2] = turn, turn end
    lengths[turn] = lengths[turn] + 1
    changed[turn] = true
    scores[#scores + 1], scores[#scores + 2] = turn * PLACES + (item[5] == true and 0 or item[5] or next_place()), item[1]
    notify(turn)
  end
  local totals = {}
  for turn in pairs(changed) do
    if undelivered[turn] then
      undelivered[turn] = lengths[turn]
    else
      totals[#totals + 1], totals[#totals + 2] = turn, lengths[turn]
    end
  end
  in_parts(scores, function(from, upto) redis.call('ZADD', returned, unpack(scores, from, upto)) end)
  in_parts(totals, function(from, upto) redis.call('HSET', lens, unpack(totals, from, upto)) end)
  in_parts(woken, function(from, upto) redis.call('ZADD', ready, unpack(woken, from, upto)) end)
end
