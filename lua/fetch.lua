#!lua flags=no-writes
-- fetch: read messages by their ids, without changing anything.
-- KEYS[1..] streams: those that they lie in
-- ARGV[1] counts: how many of them lie in each of these streams, such as "3,1"
-- ARGV[2] most: so many bytes are enough
-- ARGV[3] bare: '1' without payloads; then the size of each is in its place (see `strip_payload`)
-- ARGV[4..] ids: their entry ids, stream by stream
-- Reply: the fields of each message, false for one that is gone; of fewer than were asked for if these are large
--- @use messages
local counts, most, is_bare = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local found, size, stream, left = {}, 0, 0, 0
local next_count = string.gmatch(counts, '%d+')
for at = 4, #ARGV do
  while left == 0 do stream, left = stream + 1, tonumber(next_count()) end
  local entry = redis.call('XRANGE', KEYS[stream], ARGV[at], ARGV[at])[1]
  found[#found + 1], left = entry and (is_bare and strip_payload(entry[2]) or entry[2]) or false, left - 1
  for _, word in ipairs(entry and entry[2] or {}) do size = size + #word end
  if size >= most then break end
end
return found
