-- The turns to come: ready streams from the offset on, the legacy stream after the last, then round to the start.
local function ring(most)
  local turns = redis.call('ZRANGEBYSCORE', ready, offset, '+inf', 'LIMIT', 0, most)
  if #turns < most and not legacy_done and turns[#turns] ~= tostring(LEGACY) then
    turns[#turns + 1] = tostring(LEGACY)
  end
  if #turns < most and offset > 0 then
    local rest = redis.call('ZRANGEBYSCORE', ready, 0, '(' .. offset, 'LIMIT', 0, most - #turns)
    for _, turn in ipairs(rest) do turns[#turns + 1] = turn end
  end
  return turns
end
-- What a preferring reader took out of turn is owed by its stream: the stream's next turn is skipped, once.
local function skipped(turn)
  if owed == 0 or redis.call('HDEL', lens, 'o' .. turn) == 0 then return false end
  owed = owed - 1
  return true
end
local function take_preferred()
  local turn = ring(1)[1]
  load_lens({prefer})
  if not keys[prefer] or undelivered[prefer] == 0 or prefer == turn then return end
  check_types()
  if redis.call('HSETNX', lens, 'o' .. prefer, 1) == 0 then return end
  owed = owed + 1
  take(prefer, 1)
end
