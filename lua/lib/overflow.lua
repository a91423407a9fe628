-- The overflow is one sorted set with a run of members for each shard key, in the order of writing. A member is what one
-- call wrote of it: "length:key:<letter>n,n,...:streams:place:ms": the numbers in their ids, the streams that they may go
-- to, '!' after the place if more is known of them (lib/attempts_of). The letter says how many digits the first number
-- has, so that members sort by it. What is held costs no other entry, and a batch of it one member.
local function ordered(numbers)
  return string.char(64 + #string.match(numbers, '^%d+')) .. numbers
end
