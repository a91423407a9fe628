-- `due` says of each bucket but 0 a time before which nothing in it comes due: 'l7' of bucket 7 of the leases, 'd7' of what is
-- delayed. What leaves a bucket leaves that time as it is; whoever looks there corrects it.
local heads = {}
local function note_head(kind, bucket, at)
  local member = kind .. bucket
  if not heads[member] or at < heads[member] then heads[member] = at end
end
local function save_heads()
  local list = {}
  for member, at in pairs(heads) do list[#list + 1], list[#list + 2] = at, member end
  if #list > 0 then redis.call('ZADD', due, 'LT', unpack(list)) end -- at most 2,000: two for each message of a call
  heads = {}
end
