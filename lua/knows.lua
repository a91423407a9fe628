-- The verb knows: which keys of messages are known here. The writer of a message with a key asks where its shard key
-- had its home before (shardq/partitions/knows.py).
--
-- The field `generation` of the state is how many maps there have been: the head's own count, or in another partition
-- the count that was sent here. A write with a key that was dealt by an older map must store nothing here once another
-- client learned that the key is not known. So the epoch moves, and the next one is that of the newer map. That is one
-- small field, once for each map: a former home that is full keeps nobody from writing to a new one that has room.

-- @verb knows | allow-oom: which of these keys stand for a message, so that another one with it would not be stored.
-- KEYS[1] meta: the state of the queue
-- KEYS[2] bodies: what does not lie in streams
-- KEYS[3] leases: tokens by end
-- KEYS[4] dedup: dedup keys and unique keys
-- ARGV[1] generation: that of the caller's map
-- ARGV[2] following: the epoch from then on, if that is newer than the one sent here
-- ARGV[3..] rest: of each key the shard key, 'k' (a dedup key), 'g' (an id of a gateway) or 'u' (a unique key), the key
-- Reply: a digit for each, 1 if it is known and 0 if not; '' when there is no such queue
function verbs.knows(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'bodies', 'leases', 'dedup'})
  Arguments.check(ARGV, {'number', 'following'}, {'key', 'kind_of_key', 'key'}, 1000)
  local keys = {[META] = KEYS[1], [BODIES] = KEYS[2], [LEASES] = KEYS[3], [DEDUP] = KEYS[4]}
  local q = State.open_call(keys, 4, 'generation')
  if not q then return '' end
  local found = {}
  for at = 3, #ARGV, 3 do
    local kind, key, id = ARGV[at + 1], ARGV[at + 2], nil
    if kind ~= 'g' then key = Producers.scope_key(q, ARGV[at], key) end
    if kind == 'u' then id = Unique.find_unique(q, key) else id = Unique.find_duplicate(q, kind .. ':' .. key) end
    found[#found + 1] = id and '1' or '0'
  end
  if ARGV[1] + 0 > (tonumber(q.values[State.COMMON + 1] or 0) or 0) then
    call('HSET', KEYS[1], 'generation', ARGV[1])
    Rules.set_epoch(KEYS[1], ARGV[2])
  end
  return concat(found)
end
