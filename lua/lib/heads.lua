-- `due` says of each bucket but 0 a time before which nothing in it comes due: 'l7' of bucket 7 of the leases at that time,
-- 'd7' of what is delayed 2^42 later. What leaves a bucket leaves that time as it is; whoever looks there corrects it.
--- @include lib/shift
local heads = {}
local function note_head(kind, bucket, at)
  local member = kind .. bucket
  at = at + SHIFT[kind]
  if not heads[member] or at < heads[member] then heads[member] = at end
end
local function save_heads()
  local list = {}
  for member, at in pairs(heads) do list[#list + 1], list[#list + 2] = string.format('%.0f', at), member end
  if #list > 0 then redis.call('ZADD', due, 'LT', unpack(list)) end
  heads = {}
end
