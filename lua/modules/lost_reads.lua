-- Reads whose replies were lost: which leases they were granted, and that they are to be granted no more. All leases of a read
-- have the same deadline, and its holder in their tokens.
--
-- A search for them may take several calls. It goes from bucket to bucket, and in each from the latest deadline back to the
-- earliest that is possible: `search` has the bucket, `from` and `upto` for what is left of it, `latest` for the next ones.
--- @use schedule

-- So many buckets are looked at in one call.
local BUCKETS_PER_CALL = 500

-- A read that is given up on is remembered for so many ms, and so much text of those before it: 60 of them.
local REMEMBERED_FOR = 120000
local REMEMBERED_TEXT = 1400

-- Notes that a read is given up on, in the field `void` of `meta`: "until when|holder,holder,...". If it is still under way, it
-- finds its holder there and leases nothing, since nobody would know of it. No holder has a ':'.
local function note_lost_read(q, holder)
  if string.find(holder, ':', 1, true) then return end
  local until_when, others = string.match(redis.call('HGET', q.meta, 'void') or '0|', '^(%d+)|(.*)$')
  if tonumber(until_when) <= q.now then others = '' end
  others = string.sub(others, 1, REMEMBERED_TEXT)
  redis.call('HSET', q.meta, 'void', string.format('%.0f|%s,%s', q.now + REMEMBERED_FOR, holder, others))
end

-- Returns the search that an earlier call has not ended, as it wrote it down; or a new one, for deadlines between these.
local function parse_search(text, from, latest)
  if text == '' then return {bucket = 0, from = from, upto = latest, latest = latest} end
  local bucket, its_from, upto, its_latest = string.match(text, '^(%d+)|(%d+)|(%d+)|(%d+)$')
  return {bucket = tonumber(bucket), from = tonumber(its_from), upto = tonumber(upto), latest = tonumber(its_latest)}
end

-- Returns a search as text, for the next call.
local function spell_search(search)
  return string.format('%d|%.0f|%.0f|%.0f', search.bucket, search.from, search.upto, search.latest)
end

-- Returns the buckets that may have leases which end at this time or before, as a set, and the last of them.
local function list_lease_buckets(q, latest)
  local buckets, last = {[0] = true}, 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', q.due, '-inf', string.format('%.0f', latest))) do
    local bucket = tonumber(string.match(member, '^l(%d+)$'))
    if bucket then buckets[bucket], last = true, math.max(last, bucket) end
  end
  return buckets, last
end

-- Looks at no more than so many leases of a bucket, and appends those of the holder to `tokens`. The first that is found has
-- the deadline of all, so from then on only that one is searched for. Returns how many leases were looked at.
local function search_bucket(q, search, holder, most, tokens)
  local start = search.bucket * SPAN
  local from, upto = string.format('%.0f', start + search.from), string.format('%.0f', start + search.upto)
  local page = redis.call('ZREVRANGEBYSCORE', q.leases, upto, from, 'WITHSCORES', 'LIMIT', 0, most)
  for at = 1, #page, 2 do
    if string.match(page[at], '^%w+:[%d-]+:%d+:([^:]*)') == holder then
      local ends = page[at + 1] - start
      tokens[#tokens + 1], search.from, search.latest = page[at], ends, ends
    end
  end
  search.upto = #page == 2 * most and page[#page] - start or -1
  return #page / 2
end

-- Goes on with a search for the leases of a holder, and looks at no more than so many leases. Returns the tokens that it found,
-- and the search as text, '' at its end. If that is the same text again, more leases than these have one deadline.
local function search_leases(q, search, holder, most)
  local tokens, looks = {}, 0
  local buckets, last = list_lease_buckets(q, search.latest)
  while search.bucket <= last do
    if buckets[search.bucket] then
      if looks == BUCKETS_PER_CALL or most < 1 then return tokens, spell_search(search) end
      local seen = search_bucket(q, search, holder, most, tokens)
      if search.upto >= search.from then return tokens, spell_search(search) end
      looks, most = looks + 1, most - seen
    end
    search.bucket, search.upto = search.bucket + 1, search.latest
  end
  return tokens, ''
end
