#!lua flags=no-writes
-- soonest: which leases of some buckets end first, or which delayed messages come due first.
-- KEYS[1] meta: whether the server's clock jumped
-- KEYS[2] leases: tokens by deadline in ms
-- KEYS[3] delayed: handles by due time in ms
-- ARGV[1] kind: 'l' for leases, 'd' for delayed messages
-- ARGV[2] first: the number of the first bucket
-- ARGV[3] last: the number of the last bucket
-- ARGV[4] shard_key: '' for these buckets; else its own bucket, and that of what does not count in the admission window
-- ARGV[5] time: only what comes after this time in the index, in ms; '' for all
-- ARGV[6] bucket: ... or at this time, in a later bucket
-- ARGV[7] member: ... or in this bucket, behind this member
-- ARGV[8] until: nothing that comes after this time in the index, in ms; '' for all
-- ARGV[9] most: how many
-- Reply: {now, {member, time in the index, bucket, ...}, {time of each when it ends or comes due, ...}}. After a jump of the
--        server's clock, leases from before it end later than the index says.
--- @use time, schedule, soonest, whereabouts
local q = {meta = KEYS[1], leases = KEYS[2], delayed = KEYS[3], now = read_clock()}
local kind, first, last, shard_key, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[9])
local after = {time = tonumber(ARGV[5]), bucket = tonumber(ARGV[6]), member = ARGV[7], last = tonumber(ARGV[8])}
q.jump = kind == 'l' and read_jump(redis.call('HGET', q.meta, 'jump'), q.now)

local numbers = {}
if shard_key ~= '' then
  numbers = {0, bucket_of(shard_key)}
else
  for number = first, last do numbers[#numbers + 1] = number end
end
local found, times = list_soonest(kind == 'l' and q.leases or q.delayed, numbers, after, most), {}
for at = 2, #found, 3 do
  times[#times + 1] = string.format('%.0f', lease_end(q, found[at]))
  found[at] = string.format('%.0f', found[at])
end
return {q.now, found, times}
