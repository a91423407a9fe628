-- What a preferring reader took out of turn is owed by its stream: the stream's next turn is skipped, once.
skipped = function(turn)
  if redis.call('HDEL', lens, 'o' .. turn) == 0 then return false end
  owed = owed - 1
  return true
end
take_preferred = function(take)
  local turn = ring(1)[1]
  load_lens({prefer})
  if not keys[prefer] or undelivered[prefer] == 0 or prefer == turn then return end
  check_types(nil)
  if redis.call('HSETNX', lens, 'o' .. prefer, 1) == 0 then return end
  owed = owed + 1
  take(prefer, 1)
end
