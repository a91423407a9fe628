-- Rules that changed may have given room to shard keys whose messages are all held or in flight, and these nobody would
-- meet. So each that has something held is met once, some in each read: `walk` in meta says for how many rounds yet (what
-- changed during one begins another), `walk` in tenants whose turn is next.
--- @include lib/runs
local STEPS = 64
local walking, walked = tonumber(rules[8] or '0'), 0
local function walk_on()
  walked = walked + 1
  local place, key, after = redis.call('HGET', tenants, 'walk') or FIRST_RUN, nil, nil
  for _ = 1, STEPS do
    key, after = next_run(place)
    if not key then break end
    tenant_of(key)
    place = after
  end
  if key then
    redis.call('HSET', tenants, 'walk', place)
    return
  end
  redis.call('HDEL', tenants, 'walk')
  walking = walking - 1
  if walking > 0 then
    redis.call('HSET', meta, 'walk', walking)
  else
    redis.call('HDEL', meta, 'walk')
  end
end
