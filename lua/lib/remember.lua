-- What must not be stored twice: "k:<dedup key>" -> "end|id", "p:<lane>" -> "end|sequence|what was stored", and tallies
-- ("o:<write id>:<partition>", see lib/tally). Each kind has an index by end of its own, and so a count of its own: none
-- takes the room of another. An active lane touches its index only when half of its window is gone.
local function forget_old(index, most)
  local old = redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, most)
  if #old == 0 then return end
  redis.call('HDEL', dedup, unpack(old)) -- at most 504: a write
  redis.call('ZREM', index, unpack(old)) -- at most 504
end
local function dedup_result(key)
  local text = redis.call('HGET', dedup, 'k:' .. key)
  local ends, id = string.match(text or '0|', '^(%d+)|(.*)$')
  if tonumber(ends) > now then return id end
end
local function remember_key(key, id)
  redis.call('HSET', dedup, 'k:' .. key, string.format('%.0f|%s', now + window, id))
  redis.call('ZADD', dedup_index, now + window, 'k:' .. key)
end
-- Whether one more may be remembered. What is not over yet is never forgotten to make room.
local function is_room(index, most)
  forget_old(index, 64)
  return redis.call('ZCARD', index) <= most -- the sentinel is one
end
-- Each client has one for each of its threads. When there are so many, newcomers write without: see shardq/ops/write.py.
local MAX_LANES = 100000
-- Half of the window, which is what remains of an old lane's memory at least, is for how long the call may be repeated.
local lane_window, lane_ends, lane_index = 0, 0, lanes
local function lane_result(field, sequence)
  local text = redis.call('HGET', dedup, field)
  if not text then return nil end
  local ends, last, rest = string.match(text, '^(%d+)|(%d+)|()')
  lane_ends = tonumber(ends)
  if tonumber(last) == sequence then return 'again', string.sub(text, rest) end
  return tonumber(last) > sequence and 'stale' or nil, nil
end
local function remember_lane(field, sequence, stored)
  if lane_ends - now < lane_window / 2 then
    lane_ends = now + lane_window
    redis.call('ZADD', lane_index, lane_ends, field)
    forget_old(lane_index, 4)
  end
  redis.call('HSET', dedup, field, string.format('%.0f|%.0f|%s', lane_ends, sequence, stored))
end
