-- Scores in a timed index. The last score is below the sentinels' (lib/never).
--- @include lib/span
--- @include lib/heads
local BUCKETS = 2045
local bucket_by_key = {}
local function bucket_of(key)
  local bucket = bucket_by_key[key]
  if not bucket then
    bucket = tonumber(string.sub(redis.sha1hex(key), 1, 8), 16) % BUCKETS + 1
    bucket_by_key[key] = bucket
  end
  return bucket
end
-- The score of what comes due at that time; `key` is false for what does not count.
local function timed(kind, key, at)
  if not key then return string.format('%.0f', at) end
  local bucket = bucket_of(key)
  note_head(kind, bucket, at)
  return string.format('%.0f', bucket * SPAN + at)
end
