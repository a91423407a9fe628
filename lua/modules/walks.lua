-- Walks over the shard keys that have something in their overflows. Nothing but a walk finds one that has room while all of its
-- messages are held or in flight. After a change of rules all are looked at once (`request_walk`): meta's 'walk' says how many
-- walks are left, since a change during one asks for another. The hash `accounts` has under 'walk' and 'repair' where to go on.
--- @use accounts, overflow, window
local MOST_WALKS = 4 -- in one call
local WALKED = 64 -- shard keys in one of them
local CORRECTED = 100

-- Loads the accounts of some shard keys, and goes on there in the next read.
local function walk_on(q)
  q.walked = q.walked + 1
  local from, shard_key, after = redis.call('HGET', q.accounts, 'walk') or FIRST_RUN, nil, nil
  for _ = 1, WALKED do
    shard_key, after = next_run(q, from)
    if not shard_key then break end
    find_account(q, shard_key)
    from = after
  end
  if shard_key then
    redis.call('HSET', q.accounts, 'walk', from)
    return
  end
  redis.call('HDEL', q.accounts, 'walk')
  q.walks_left = q.walks_left - 1
  if q.walks_left > 0 then
    redis.call('HSET', q.meta, 'walk', q.walks_left)
  else
    redis.call('HDEL', q.meta, 'walk')
  end
end

-- Corrects accounts when nothing is left in the streams: whatever they say, nobody has anything there, somebody deleted it by
-- hand. Then all may have room. Of many shard keys it looks at some in each read, one after the other.
local function correct_accounts(q)
  local from, shard_key, after = redis.call('HGET', q.accounts, 'repair') or FIRST_RUN, nil, nil
  local has_begun = from ~= FIRST_RUN
  for _ = 1, CORRECTED do
    shard_key, after = next_run(q, from)
    if not shard_key then break end
    local account = find_account(q, shard_key)
    count_messages(q, account, -account.shared, account.held > 0 and 0 or 1)
    from = after
  end
  if shard_key then
    redis.call('HSET', q.accounts, 'repair', from)
  elseif has_begun then
    redis.call('HDEL', q.accounts, 'repair')
  end
end

-- Looks for messages that may be admitted when a read has found nothing. Returns whether there were any. If walks are left,
-- there may be more: the caller looks again at once.
local function search_overflow(q)
  while q.walks_left > 0 and q.walked < MOST_WALKS do
    walk_on(q)
    if admit_held(q) then return true end
  end
  if redis.call('ZCARD', q.overflow) == 1 then return false end
  if q.walks_left > 0 then
    q.status = 'MORE'
    return false
  end
  -- Where all of it waits for limits that is seldom somebody's deed, so most reads leave out the search.
  if q.has_limits and q.withheld >= q.held and q.now % 16 > 0 then return false end
  correct_accounts(q)
  return admit_held(q)
end
