-- The shard keys that have something held, one after the other: the next one from a place on, and the place after it.
local FIRST_RUN = '('
local function next_run(from)
  local member = redis.call('ZRANGEBYLEX', overflow, from, '(t', 'LIMIT', 0, 1)[1]
  if not member then return nil end
  local size, rest = string.match(member, '^(%d+):(.*)$')
  local key = string.sub(rest, 1, size)
  return key, '(' .. size .. ':' .. key .. ';'
end
