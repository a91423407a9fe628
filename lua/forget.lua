#!lua flags=allow-oom
-- forget: drop what was counted under an earlier cap or limit, of some shard keys in each call: what they had in flight, and where
-- nothing is counted any more, how many of their messages waited for it.
-- KEYS[1] meta: number of the present cap
-- KEYS[2] accounts: what each shard key holds
-- ARGV[1] cursor: where to go on, '0' to start
-- ARGV[2] count: about how many fields to look at
-- Reply: cursor to go on from, '0' at the end
local meta, accounts, cursor, count = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local present_cap, cap, limited, rate = unpack(redis.call('HMGET', meta, 'cap_no', 'max_in_flight', 'limited', 'rate')) -- at most 4: the fields
local counts = (cap or '0') ~= '0' or (limited or '0') ~= '0' or (rate or '0') ~= '0'
local found = redis.call('HSCAN', accounts, cursor, 'COUNT', count)
local next_cursor, fields = found[1], found[2]
for at = 1, #fields, 2 do
  local field, text = fields[at], fields[at + 1]
  local kind = string.sub(field, 1, 2)
  if kind == 'f:' and string.match(text, '^%d+') ~= present_cap then
    redis.call('HDEL', accounts, field)
  elseif kind == 't:' and not counts and string.find(text, ' !', 1, true) then
    redis.call('HSET', accounts, field, (string.gsub(text, ' !%d+', '')))
  end
end
return next_cursor
