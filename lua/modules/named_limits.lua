-- The shard keys that have limits of their own. The hash `limits` has the limits of each, for those who list them; `accounts` has
-- the same under 'l:' and the name, where calls look at the account (lua/modules/limits.lua).
--- @use leases, rules, schedule
local MOST_COUNTED = 5000 -- leases
local LEASE_OF = '^[^:]+:[^:]+:[^:]+:[^:]+:[^:]*:' -- what a lease token has before the shard key
local COUNTED_TOGETHER = 2500 -- leases, of several shard keys

-- Returns the limits of these shard keys after the changes, as text, false for none; and how many shard keys have any then.
local function join_limits(q, names, changes)
  local fields, limited = {}, redis.call('HLEN', q.limits) - 1
  for at, name in ipairs(names) do fields[at] = 'l:' .. name end
  local texts = redis.call('HMGET', q.accounts, unpack(fields)) -- at most 50: a call
  for at, name in ipairs(names) do
    local parts, change = {}, changes[name]
    for part in string.gmatch(texts[at] or '- - - 0', '%S+') do parts[#parts + 1] = part end
    if tonumber(parts[4]) <= q.now then parts[4] = '0' end
    for nth = 1, 4 do
      if change[nth] ~= '' then parts[nth] = change[nth] end
      if nth == 4 and string.byte(parts[4]) == 43 then parts[4] = string.format('%.0f', q.now + parts[4]) end -- 43 is '+'
    end
    local text = table.concat(parts, ' ')
    text = text ~= '- - - 0' and text
    limited = limited + (text and 1 or 0) - (texts[at] and 1 or 0)
    texts[at] = text
  end
  return texts, limited
end

-- Writes down the limits of these shard keys. While there are no limits nobody counts what is in flight, so what was counted before
-- must count no more then (see `forget`). Returns whether that changed.
local function save_named(q, names, texts, limited)
  local cap, rate, before = unpack(redis.call('HMGET', q.meta, 'max_in_flight', 'rate', 'limited')) -- at most 3: the fields
  local is_switched = (cap or '0') == '0' and (rate or '0') == '0' and (limited > 0) ~= ((before or '0') ~= '0')
  if is_switched then redis.call('HINCRBY', q.meta, 'cap_no', 1) end
  for at, name in ipairs(names) do
    if texts[at] then
      redis.call('HSET', q.accounts, 'l:' .. name, texts[at])
      redis.call('HSET', q.limits, name, texts[at])
    else
      redis.call('HDEL', q.accounts, 'l:' .. name)
      if (rate or '0') == '0' then redis.call('HDEL', q.accounts, 'b:' .. name) end
      redis.call('HDEL', q.limits, name)
    end
  end
  redis.call('HSET', q.meta, 'limited', limited)
  save_mark(q)
  return is_switched
end

-- Returns where the leases of a shard key lie, beside those of others. Of a parent, they may be anywhere.
local function lease_range(q, name)
  if q.has_parents then return '-inf', '(9000000000000000' end
  local start = bucket_of(name) * SPAN
  return string.format('%.0f', start), string.format('(%.0f', start + SPAN)
end

-- Returns of how many of these shard keys, from the first one on, one call counts what is in flight.
local function find_countable(q, names)
  local leases = 0
  for at, name in ipairs(q.has_parents and {} or names) do
    leases = leases + redis.call('ZCOUNT', q.leases, lease_range(q, name))
    if at > 1 and leases > COUNTED_TOGETHER then return at - 1 end
  end
  return #names
end

-- Counts in `flights` the leases of each account, of those in this range. There may be thousands, so one look at each has to do.
local function count_leases(q, from, upto, flights)
  local pattern = q.has_parents and LEASE_OF .. '([^/]*)' or LEASE_OF .. '(.+)'
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', q.leases, from, upto, 'LIMIT', 0, MOST_COUNTED)) do
    local name = string.match(token, pattern)
    if name == '' then _, name = split_owner(token) end
    if name then flights[name] = (flights[name] or 0) + 1 end
  end
end

-- Counts anew what accounts have in flight. Nobody may have counted before they had limits. Where there are very many leases some
-- are left out, so that an account may then have more in flight for a while.
local function recount_flights(q, names)
  local flights, counted = {}, {}
  for _, name in ipairs(names) do
    local from, upto = lease_range(q, name)
    if not counted[from] then count_leases(q, from, upto, flights) end
    counted[from] = true
  end
  for _, name in ipairs(names) do
    local account = q.account_by[name]
    account.flight, account.stored_flight = flights[name] or 0, false
  end
end
