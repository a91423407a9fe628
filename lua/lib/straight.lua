-- The streams are empty and a batch wants more: of the shard keys that it has met, go on with what they hold back, each
-- in its turn and by its weight. All of a batch leaves at once, so nobody waits behind it, and it need not pass through
-- the line. (While the streams have something, a turn is one message: were it more, which costs less, all who come next
-- would wait for as many times what they wait for ideally.)
--- @include lib/deliver_held
straight = function()
  local waiting, weights, before = {}, 0, found
  for _, tenant in ipairs(accounts) do
    if tenant.held > 0 and room_of(tenant) > 0 then
      waiting[#waiting + 1], weights = tenant, weights + tenant.weight
    end
  end
  -- Up or down by turns of the clock: always up would favour whom a read meets first.
  local items, rounding = {}, now * 0.6180339887 % 1
  for _, tenant in ipairs(waiting) do
    local most = math.floor((count - found - #items) * tenant.weight / weights + rounding)
    most = math.min(most, under_cap(tenant))
    weights = weights - tenant.weight
    if most > 0 then
      for _, item in ipairs(withdraw(tenant, most)) do items[#items + 1] = item end
    end
  end
  deliver_held(items)
  account()
  return found > before
end
