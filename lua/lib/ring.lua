-- The turns to come: ready streams from the offset on, the legacy stream after the last, then round to the start.
--- @include lib/counts
--- @include lib/places
--- @include lib/span
local cursor = {}
local function ring(most)
  local turns = redis.call('ZRANGEBYSCORE', ready, offset, '+inf', 'LIMIT', 0, most)
  -- What was given back there must wait while the queue has no legacy stream any more, and must not stop the round.
  if turns[#turns] == LEGACY and not keys[LEGACY] and redis.call('HEXISTS', meta, 'legacy_stream') == 0 then
    turns[#turns] = nil
  end
  if #turns < most and not legacy_done and turns[#turns] ~= LEGACY then turns[#turns + 1] = LEGACY end
  if #turns < most and offset > 0 then
    local rest = redis.call('ZRANGEBYSCORE', ready, 0, '(' .. offset, 'LIMIT', 0, most - #turns)
    for _, turn in ipairs(rest) do turns[#turns + 1] = turn end
  end
  return turns
end
-- The same without those that this call has emptied: they leave the index at its end, so that all it reads comes first.
local function turns_to_come(most)
  local empty = {}
  for turn, left in pairs(undelivered) do
    if left <= 0 and (turn ~= LEGACY or legacy_done) then empty[#empty + 1], empty[turn] = turn, true end
  end
  if #empty == 0 then return ring(most) end
  local turns = {}
  for _, turn in ipairs(ring(most + #empty)) do
    if #turns < most and not empty[turn] then turns[#turns + 1] = turn end
  end
  return turns
end
local function load_lens(turns)
  local fields, missing = {}, {}
  for _, turn in ipairs(turns) do
    if not undelivered[turn] then
      missing[#missing + 1] = turn
      fields[#fields + 1], fields[#fields + 2] = turn, 'h' .. turn
    end
  end
  if #missing == 0 then return end
  local values = redis.call('HMGET', lens, unpack(fields)) -- at most 2,000: a read
  for i, turn in ipairs(missing) do
    undelivered[turn], cursor[turn] = tonumber(values[2 * i - 1] or '0'), values[2 * i] or '0-0'
  end
end
