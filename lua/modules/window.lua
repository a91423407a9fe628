-- The admission window: how many undelivered messages each shard key may have in the shared streams.

-- Asks the reads that come to look at every shard key that has something in its overflow. After a change of rules such a
-- shard key may have room, and nobody would look at it if all of its messages are in the overflow or in flight.
local function request_walk(q)
  redis.call('HSET', q.meta, 'walk', redis.call('HEXISTS', q.meta, 'walk') + 1)
end
