-- A shard key of weight w has w turns whenever one comes. What is due to it then is handed out next: in this call, or as
-- the first of this stream, which stays in turn.
local function ahead_of_all(tenant, turn)
  local item = withdraw(tenant, 1)[1]
  if not item then return nil end
  local here = item[2] == 'd' or item[2] == turn
  count_tenant(tenant, 1, 0)
  item[4], item[5] = here and turn, here
  return item
end
-- Of a stream that stayed in turn for what is ahead of all there, only that is taken: were others taken with it, their
-- turns would begin, it would stay for them, and no other stream would ever come.
only_ahead = function(turn, most)
  local score = string.format('%.0f', turn * PLACES)
  local ahead = redis.call('ZCOUNT', returned, score, score)
  return ahead > 0 and math.min(ahead, most) or most
end
linger = function(turn)
  check_types(turn)
  hand_out_line()
  account()
  local all, ahead, stays = due, {}, false
  due = {}
  for _, tenant in ipairs(all) do
    local most = math.min(tenant.due, tenant.held, count - found, under_cap(tenant))
    if most > 0 then
      deliver_held(withdraw(tenant, most))
      tenant.due = tenant.due - most
      account()
    end
    if tenant.held == 0 then tenant.due = 0 end
    if tenant.due > 0 and tenant.turn == turn and room_of(tenant) > 0 then
      ahead[#ahead + 1] = ahead_of_all(tenant, turn)
      stays = stays or ahead[#ahead] and ahead[#ahead][5]
      save_overflow()
    end
  end
  line_up_all(ahead)
  return stays
end
