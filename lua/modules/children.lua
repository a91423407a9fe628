-- The children of a parent, such as "acct-7/user-9" of "acct-7", take turns in its overflow (start-time fair queueing: Goyal,
-- Vin, Cheng 1996). Each child that has something held has a member in the overflow that says when its turn is:
-- "tlength:parent:tag:child". The hash `accounts` has its "held tag" under 'c:' and the shard key.
local TURN = 1000

-- Returns what the members of a parent's children begin with.
local function children_prefix(name)
  return 't' .. #name .. ':' .. name .. ':'
end

-- Returns the member that says when the turn of a child is.
local function child_member(account, shard_key, child)
  return children_prefix(account.name) .. string.format('%016.0f:', child.tag) .. shard_key
end

-- Returns what is known of a child. It is loaded once in a call, and saved with its parent's account.
local function find_child(q, account, shard_key)
  local child = account.children[shard_key]
  if not child then
    local text = redis.call('HGET', q.accounts, 'c:' .. shard_key)
    local held, tag = string.match(text or '0 0', '^(%d+) (%d+)$')
    local has_weight = q.has_weights and shard_key ~= account.name
    local weight = has_weight and redis.call('HGET', q.accounts, 'w:' .. shard_key) or 1
    child = {stored = text, held = tonumber(held), tag = tonumber(tag), step = math.ceil(TURN / weight)}
    account.children[shard_key] = child
  end
  return child
end

-- Counts messages of a child that are held more, or less; its turn comes later by `turns` turns. A child that had nothing
-- held comes after those whose turn is still to come in this round, and before those that had theirs: so it waits for one
-- message of each at most.
local function count_child(q, account, shard_key, by, turns)
  local child = find_child(q, account, shard_key)
  if child.held > 0 then redis.call('ZREM', q.overflow, child_member(account, shard_key, child)) end
  if child.held == 0 then child.tag = account.tag + child.step - 1 end
  child.held = math.max(0, child.held + by)
  child.tag = child.tag + turns * child.step
  if child.held > 0 then redis.call('ZADD', q.overflow, 0, child_member(account, shard_key, child)) end
end

-- Lists the children of an account that have something held, in the order of their turns, at most so many.
local function list_waiting(q, account, most)
  local prefix, waiting = children_prefix(account.name), {}
  local upto = '(' .. string.sub(prefix, 1, -2) .. ';'
  local members = redis.call('ZRANGEBYLEX', q.overflow, '[' .. prefix, upto, 'LIMIT', 0, most)
  for at, member in ipairs(members) do
    local key = string.sub(member, #prefix + 18) -- the tag has 16 digits
    local child = find_child(q, account, key)
    waiting[at] = {key = key, tag = child.tag, left = child.held, step = child.step, count = 0}
  end
  return waiting
end

-- Chooses the children of an account whose turn it is, for at most 32 messages. Returns {key, count} of each.
local function choose_children(q, account, most)
  most = math.min(most, 32)
  local waiting, chosen = list_waiting(q, account, most), {}
  for _ = 1, most do
    local first
    for _, each in ipairs(waiting) do
      if each.left > 0 and (not first or each.tag < first.tag) then first = each end
    end
    if not first then break end
    if first.count == 0 then chosen[#chosen + 1] = first end
    account.tag = math.max(account.tag, first.tag)
    first.tag, first.left, first.count = first.tag + first.step, first.left - 1, first.count + 1
  end
  return chosen
end
