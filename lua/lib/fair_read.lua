-- A message that counts leaves the shared streams: handed out (then it is in flight) or otherwise. Or it was handed out
-- straight from the overflow. Put into the accounts when a round ends, all in one look.
local passed = {}
pass = function(key, out, turn)
  passed[#passed + 1] = {key, out, turn}
end
local due = {}
local function account()
  if #passed == 0 then return end
  local all, names = passed, {}
  passed = {}
  for at, each in ipairs(all) do names[at] = each[1] end
  meet(names)
  for _, each in ipairs(all) do
    local tenant = tenant_of(each[1])
    if each[3] then count_tenant(tenant, -1, 0) end
    tenant.turn = each[3]
    if each[2] and cap > 0 then tenant.flight = tenant.flight + 1 end
    if each[2] and each[3] and tenant.weight > 1 then
      tenant.due = tenant.due > 0 and tenant.due - 1 or tenant.weight - 1
      due[#due + 1] = tenant
    end
  end
end
-- Nothing is left in the shared streams, so whatever the counts say (somebody deleted entries by hand), nobody holds
-- anything there: let in what their caps allow.
local function mend()
  local from = '('
  for _ = 1, 100 do
    local member = redis.call('ZRANGEBYLEX', overflow, from, '(t', 'LIMIT', 0, 1)[1]
    if not member then break end
    local size, rest = string.match(member, '^(%d+):(.*)$')
    local key = string.sub(rest, 1, size)
    local tenant = tenant_of(key)
    count_tenant(tenant, -tenant.shared, tenant.held > 0 and 0 or 1)
    from = '(' .. size .. ':' .. key .. ';'
  end
  return admit_all()
end
--- @include lib/deliver_held
-- The streams are empty and a batch wants more: of the shard keys that it has met, go on with what they hold back, each
-- in its turn and by its weight. All of a batch leaves at once, so nobody waits behind it, and it need not pass through
-- the line.
local function straight()
  local waiting, weights, before = {}, 0, found
  for _, tenant in ipairs(accounts) do
    if tenant.held > 0 and room_of(tenant) > 0 then
      waiting[#waiting + 1], weights = tenant, weights + tenant.weight
    end
  end
  local items, left = {}, count - found
  for _, tenant in ipairs(waiting) do
    local most = math.ceil(left * tenant.weight / weights)
    if cap > 0 then most = math.min(most, room_of(tenant)) end
    weights = weights - tenant.weight
    for _, item in ipairs(most > 0 and withdraw(tenant, most) or {}) do items[#items + 1], left = item, left - 1 end
  end
  deliver_held(items)
  account()
  return found > before
end
--- @include lib/linger
next_round = function(nothing)
  check_types()
  account()
  if found == count then return false end
  local any = count > 1 and #turns_to_come(1) == 0 and straight()
  any = admit_all() or any or nothing and redis.call('ZCARD', overflow) > 1 and mend()
  any_returned = redis.call('ZCARD', returned) > 1
  return any
end
close = function()
  account()
  close_accounts()
end
