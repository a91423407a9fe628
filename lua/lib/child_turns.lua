-- The turns of a parent's children, and how to count them.
local TURN = 1000
local function turn_member(tenant, key, child)
  return turns_of(tenant.name) .. string.format('%016.0f:', child.tag) .. key
end
child_of = function(tenant, key)
  local child = tenant.children[key]
  if not child then
    local text = redis.call('HGET', tenants, 'c:' .. key)
    local held, tag = string.match(text or '0 0', '^(%d+) (%d+)$')
    local weight = weighted and key ~= tenant.name and redis.call('HGET', tenants, 'w:' .. key) or 1
    child = {was = text, held = tonumber(held), tag = tonumber(tag), step = math.ceil(TURN / weight)}
    tenant.children[key] = child
  end
  return child
end
-- So many more of a child are held, or fewer; its turn comes by `turns` later. One that had nothing held comes after those
-- whose turn is still to come in this round, and before those that had theirs: it waits for one message of each at most.
count_child = function(tenant, key, by, turns)
  local child = child_of(tenant, key)
  if child.held > 0 then redis.call('ZREM', overflow, turn_member(tenant, key, child)) end
  if child.held == 0 then child.tag = tenant.tag + child.step - 1 end
  child.held = math.max(0, child.held + by)
  child.tag = child.tag + turns * child.step
  if child.held > 0 then redis.call('ZADD', overflow, 0, turn_member(tenant, key, child)) end
end
