-- The streams are empty and a batch wants more: of the shard keys that it has met, go on with what they hold back, each
-- in its turn and by its weight. All of a batch leaves at once, so nobody waits behind it, and it need not pass through
-- the line.
--- @include lib/deliver_held
straight = function()
  local waiting, weights, before = {}, 0, found
  for _, tenant in ipairs(accounts) do
    if tenant.held > 0 and room_of(tenant) > 0 then
      waiting[#waiting + 1], weights = tenant, weights + tenant.weight
    end
  end
  -- Up or down by turns of the clock: always up would favour whom a read meets first.
  local items, left, rounding = {}, count - found, now * 0.6180339887 % 1
  for _, tenant in ipairs(waiting) do
    local most = math.min(math.floor(left * tenant.weight / weights + rounding), under_cap(tenant))
    weights = weights - tenant.weight
    for _, item in ipairs(most > 0 and withdraw(tenant, most) or {}) do items[#items + 1], left = item, left - 1 end
  end
  deliver_held(items)
  account()
  return found > before
end
