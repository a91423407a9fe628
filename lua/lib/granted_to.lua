-- Leases of one read, among so many that are looked at, and where to go on: "bucket|from|upto|latest", '' at the end. In a
-- bucket the search goes down to `from`; it begins at `latest` in each. Both are the one deadline of all of them as soon as the
-- first is found.
--- @include lib/span
local LOOKS = 500
local function buckets_until(latest)
  local there, last = {[0] = true}, 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', string.format('%.0f', latest))) do
    local bucket = tonumber(string.match(member, '^l(%d+)$'))
    if bucket then there[bucket], last = true, math.max(last, bucket) end
  end
  return there, last
end
local function granted_to(holder, where, most, from, latest)
  local tokens, looks, bucket, upto = {}, 0, 0, latest
  if where ~= '' then
    local numbers = {string.match(where, '^(%d+)|(%d+)|(%d+)|(%d+)$')}
    bucket, from, upto, latest = tonumber(numbers[1]), tonumber(numbers[2]), tonumber(numbers[3]), tonumber(numbers[4])
  end
  local there, last = buckets_until(latest)
  local function here() return string.format('%d|%.0f|%.0f|%.0f', bucket, from, upto, latest) end
  while bucket <= last do
    if there[bucket] then
      if looks == LOOKS or most < 1 then return tokens, here() end
      local start = bucket * SPAN
      local page = redis.call('ZREVRANGEBYSCORE', leases, string.format('%.0f', start + upto), string.format('%.0f', start + from),
        'WITHSCORES', 'LIMIT', 0, most)
      for at = 1, #page, 2 do
        if string.match(page[at], '^%w+:[%d-]+:%d+:([^:]*)') == holder then
          tokens[#tokens + 1], from, latest = page[at], page[at + 1] - start, page[at + 1] - start
        end
      end
      upto = #page == 2 * most and page[#page] - start or -1
      if upto >= from then return tokens, here() end
      looks, most = looks + 1, most - #page / 2
    end
    bucket, upto = bucket + 1, latest
  end
  return tokens, ''
end
