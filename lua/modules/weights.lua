-- The weights of shard keys. The hash `accounts` has each under 'w:' and the shard key, and all as one text under 'weights':
-- "weight:length:key" of each, joined. The weight 1 is every shard key's and kept of none.

-- Reads all weights: a table by shard key, and the shard keys in the order of the text.
local function read_weights(q)
  local text, at = redis.call('HGET', q.accounts, 'weights') or '', 1
  local weights, keys = {}, {}
  while at <= #text do
    local weight, length, from = string.match(text, '^(%d+):(%d+):()', at)
    local key = string.sub(text, from, from + length - 1)
    weights[key], keys[#keys + 1], at = weight, key, from + length
  end
  return weights, keys
end

-- Puts the weights of these shard keys into one text. Returns it, and how many of them it has.
local function join_weights(weights, keys)
  local parts = {}
  for _, key in ipairs(keys) do
    if weights[key] ~= '1' then parts[#parts + 1] = weights[key] .. ':' .. #key .. ':' .. key end
  end
  return table.concat(parts), #parts
end

-- Stores the weight of one shard key where its account is.
local function save_weight(q, key, weight)
  if weight == '1' then
    redis.call('HDEL', q.accounts, 'w:' .. key)
  else
    redis.call('HSET', q.accounts, 'w:' .. key, weight)
  end
end
