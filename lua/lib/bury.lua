-- The way to the dead letters.
--- @include lib/doomed
--- @include lib/attributes
--- @include lib/most_fields
--- @include lib/timed
--- @include lib/count_delayed
-- Full means that the move waits: the message is parked and tried again. What it may do then stays as it was: where it
-- may go, and that it was rejected.
local function park(letter)
  note_attempts(letter.handle, letter.count, (letter.rejected and DOOMED or '') .. letter.hand, letter.last_error)
  redis.call('ZADD', delayed, timed('d', letter.fields[1] == 'K' and letter.fields[2], now + 5000), letter.handle)
  save_heads()
  if letter.fields[1] == 'K' then
    redis.call('HSET', owners, letter.handle, letter.fields[2])
    count_delayed(letter.fields[2], 1)
  end
  if log then log.body('p', letter.place, letter.id, letter.fields, letter.count, now + 5000) end
end
-- Move a body there. A letter: handle, place, id, key of the body, fields, deliveries so far (count), the streams that
-- it may go to (hand), last_error, whether it was rejected. Returns false when it had to wait.
local function bury(letter, kind, max_dead)
  local fields, place, id = letter.fields, letter.place, letter.id
  if redis.call('XLEN', dead) >= max_dead or #fields > MOST_FIELDS then
    park(letter)
    return false
  end
  local foreign = place == 'l' or (fields[1] ~= 'k' and fields[1] ~= 'K') or #fields < 4
  local attributes = foreign and '' or attributes_of(fields)
  local origin = string.match(attributes, ' i(%S+)')
  -- With those before it was redriven. Who else writes attributes may write any number.
  local total = letter.count + math.min(tonumber(string.match(attributes, ' c(%d+)')) or 0, 1000000000)
  local reason = letter.rejected and letter.last_error or 'max deliveries'
  local entry = {'XADD', dead, '*', 'i', origin or (id .. '-' .. place), 'r', reason, 'c', total, 'e', letter.last_error}
  if foreign then
    for _, value in ipairs({'k', '', 'l', '', 'm', ''}) do entry[#entry + 1] = value end
  end
  for _, value in ipairs(fields) do entry[#entry + 1] = value end
  redis.call(unpack(entry)) -- at most 7,016: MOST_FIELDS and what a letter adds
  redis.call('XDEL', letter.key, id)
  redis.call('HDEL', attempts, letter.handle)
  if origin then redis.call('HDEL', moved, origin) end
  redis.call('HINCRBY', meta, 'gone', 1)
  redis.call('HINCRBY', meta, 'dead_lettered', 1)
  if log then log.body(kind, place, id, fields, letter.count) end
  return true
end
