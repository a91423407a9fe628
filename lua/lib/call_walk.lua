-- Whoever has something held is to be met: by the reads that come (lib/walk).
local function call_walk()
  redis.call('HSET', meta, 'walk', redis.call('HEXISTS', meta, 'walk') + 1)
end
