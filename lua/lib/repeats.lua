-- How many messages of this call repeat one that was written before: they take no room.
for at = 10 + declared + stride, #ARGV, stride do
  local key = string.match(ARGV[at], '^%d*|%d*|(.+)$')
  if key and dedup_result(key) then known = known + 1 end
end
