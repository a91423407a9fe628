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

-- Notes in `q.runs` that a message waits in the overflow of its shard key.
local function hold_message(q, number, shard, shard_key)
  local run = q.runs[shard_key]
  if run then
    run[#run + 1] = number
  else
    q.runs[shard_key] = {number}
    q.run_keys[#q.run_keys + 1], q.run_shards[#q.run_shards + 1] = shard_key, shard
  end
end

-- Lists the members for what a call holds back of a shard key.
local function list_members(q, shard_key, shard, numbers, members)
  local start = spell_number(q, #shard_key) .. ':' .. shard_key .. ':'
  local rest = ':' .. shard .. ':d:' .. string.sub(q.prefix, 1, -2)
  for from = 1, #numbers, MOST_NUMBERS do
    local upto = math.min(#numbers, from + MOST_NUMBERS - 1)
    local list = numbers[2] and table.concat(numbers, ',', from, upto) or numbers[1]
    members[#members + 1], members[#members + 2] = '0', start .. mark_numbers(list) .. rest
  end
end

-- Appends what this call holds back to the runs of its shard keys. `shards` has the streams that each may go to, as text.
local function save_held(q, shards)
  local members = {}
  for at, key in ipairs(q.run_keys) do
    local numbers = q.runs[key]
    list_members(q, key, shards[at], numbers, members)
    if q.has_parents then count_child(q, find_account(q, key), key, #numbers, 0) end
  end
  if #members > 0 then redis.call('ZADD', q.overflow, unpack(members)) end -- at most 1,000: two for each of a write
end
