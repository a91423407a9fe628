-- The overflow: what the admission window holds back. It is one sorted set with a run of members for each shard key, in the
-- order of writing. A member is what one call wrote of it, "length:key:<letter>n,n,...:streams:place:ms": the numbers in the
-- messages' ids, the streams that they may go to, '!' after the place if more is known of them. The letter says how many
-- digits the first number has, so that members sort by it. So what is held costs no other entry, and a batch of it one member.
--- @use lists, children, accounts
local MOST_NUMBERS = 64

-- Puts the letter before a list of numbers that says how many digits the first one has.
local function mark_numbers(numbers)
  return string.char(64 + #string.match(numbers, '^%d+')) .. numbers
end

-- Notes in `q.runs` that a message waits in the overflow of its shard key. Returns true if it is the first one of this call.
local function hold_message(q, number, shard_key)
  local runs = q.runs
  local run = runs[shard_key]
  if run then
    run[#run + 1] = number
    return false
  end
  runs[shard_key] = {number}
  return true
end

-- Lists the members for what a call holds back of a shard key. `start` is "length:key:", `rest` is ":streams:place:ms".
local function list_members(members, start, numbers, rest)
  local at = #members
  if not numbers[2] then
    members[at + 1], members[at + 2] = '0', start .. mark_numbers(numbers[1]) .. rest
    return
  end
  for from = 1, #numbers, MOST_NUMBERS do
    local list = table.concat(numbers, ',', from, math.min(#numbers, from + MOST_NUMBERS - 1))
    members[at + 1], members[at + 2], at = '0', start .. mark_numbers(list) .. rest, at + 2
  end
end

-- Appends what this call holds back to the runs of its shard keys. `shards` has the streams that each may go to, as text.
local function save_held(q, shard_keys, shards)
  local members, written_at = {}, ':d:' .. string.sub(q.prefix, 1, -2)
  for at, key in ipairs(shard_keys) do
    local numbers = q.runs[key]
    list_members(members, spell_number(q, #key) .. ':' .. key .. ':', numbers, ':' .. shards[at] .. written_at)
    if q.has_parents then count_child(q, find_account(q, key), key, #numbers, 0) end
  end
  if #members > 0 then redis.call('ZADD', q.overflow, unpack(members)) end -- at most 1,000: two for each of a write
end
