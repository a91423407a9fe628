-- What becomes of a message whose lease its holder ended by `nack` or `reject`. It is written down at the end, for all at once.
local noted, back, waits, owned = {}, {}, {}, {}
local function vanish(item)
  redis.call('HINCRBY', meta, 'gone', 1)
  redis.call('HINCRBY', meta, 'vanished', 1)
  if log then log.note('z', string.match(item[1], ':(.*)$') .. '-' .. item[2], '', 0) end
  return 'l'
end
-- Past its last delivery. A letter as in the reply.
local function end_of(item, why)
  local id = string.match(item[1], ':(.*)$')
  local body = redis.call('XRANGE', keys[item[2]], id, id)[1]
  if not body then return vanish(item) end
  local letter = {
    handle = item[1], place = item[2], id = id, key = keys[item[2]], fields = body[2], count = item[10], hand = item[3],
    last_error = why, rejected = rejected,
  }
  return bury(letter, rejected and 'r' or 'b', limits().dead) and 'd' or 'o'
end
local function put_back(i, item, delay, why)
  item[11], item[12] = why == '' and item[11] or why, now + delay
  if rejected or item[10] >= limits().deliveries then return end_of(item, item[11]) end
  noted[#noted + 1] = item
  if log then log.settled('n', i, item[2], string.match(item[1], ':(.*)$'), item[10], delay > 0 and now + delay) end
  if delay == 0 then
    back[#back + 1] = item
    return 'o'
  end
  waits[#waits + 1], waits[#waits + 2] = timed('d', item[7], now + delay), item[1]
  if item[7] then
    owned[#owned + 1], owned[#owned + 2] = item[1], item[7]
    count_delayed(item[7], 1)
  end
  if delay < 5000 then notify('') end
  return 'o'
end
local function put_back_all()
  note_all(noted)
  if #waits > 0 then redis.call('ZADD', delayed, unpack(waits)) end -- at most 500: two for each message of a chunk
  if #owned > 0 then redis.call('HSET', owners, unpack(owned)) end -- at most 500: two for each message of a chunk
  save_heads()
  give_back_all(back)
end
