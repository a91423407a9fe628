-- The streams are empty and a batch wants more: of the shard keys that it has met, go on with what they hold back, each
-- in its turn and by its weight. All of a batch leaves at once, so nobody waits behind it, and it need not pass through
-- the line.
--- @include lib/deliver_held
-- A turn costs the server more than a message. So where overflows hold more than a large batch, a turn is two messages, and
-- three where more shard keys wait than it has messages (a quantum of deficit round robin: Shreedhar, Varghese 1995): the
-- batch takes the first of each from the streams, then the others. More would be cheaper, and make others wait longer.
local LARGE, begun = 32, false
goal = function()
  if begun or count < LARGE or linger then return count end
  begun = true
  local wait, held = string.match(redis.call('HGET', tenants, 'sum') or '0 0', '^(%d+) (%d+)$')
  if tonumber(held) < count then return count end
  local quantum = tonumber(wait) < count and 2 or 3
  extra = quantum - 1
  return found + math.ceil((count - found) / quantum)
end
-- What comes after its turn of a shard key, and what takes its place in the line, in one look into its overflow.
local function turn_of_more(tenant, most, items, lining)
  for at, item in ipairs(withdraw(tenant, cap == 0 and most + 1 or most)) do
    if at <= most then
      items[#items + 1] = item
    else
      count_tenant(tenant, 1, 0)
      lining[#lining + 1] = lined(tenant, item)
    end
  end
end
straight = function(each)
  local waiting, weights, before = {}, 0, found
  for _, tenant in ipairs(accounts) do
    if tenant.held > 0 and room_of(tenant) > 0 then
      waiting[#waiting + 1], weights = tenant, weights + tenant.weight
    end
  end
  -- Up or down by turns of the clock: always up would favour whom a read meets first.
  local items, lining, rounding = {}, {}, now * 0.6180339887 % 1
  for _, tenant in ipairs(waiting) do
    local left = count - found - #items
    local most = math.min(each and math.min(each, left) or math.floor(left * tenant.weight / weights + rounding), under_cap(tenant))
    weights = weights - tenant.weight
    if each and most > 0 then
      turn_of_more(tenant, most, items, lining)
    elseif most > 0 then
      for _, item in ipairs(withdraw(tenant, most)) do items[#items + 1] = item end
    end
  end
  deliver_held(items)
  line_up_all(lining)
  any_returned = any_returned or #lining > 0
  account()
  return found > before
end
