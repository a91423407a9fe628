-- A shard key of weight w has w turns whenever one comes. What is due to it then is handed out next: in this call, or as
-- the first of this stream, which stays in turn.
linger = function(turn)
  hand_out_line()
  account()
  local stays, all, ahead = false, due, {}
  due = {}
  for _, tenant in ipairs(all) do
    local most = math.min(tenant.due, tenant.held, count - found, math.max(0, room_of(tenant)))
    if most > 0 then
      deliver_held(withdraw(tenant, most))
      tenant.due = tenant.due - most
    end
    account()
    if tenant.held == 0 then tenant.due = 0 end
    if tenant.due > 0 and room_of(tenant) > 0 then
      for _, item in ipairs(withdraw(tenant, 1)) do
        count_tenant(tenant, 1, 0)
        local about = item[2]
        local here = about.place == 'd' or about.place == turn
        stays = stays or here
        ahead[#ahead + 1] = {about.place .. ':' .. about.ms .. '-' .. item[1], about.place, about.hand, here and turn, here}
      end
    end
  end
  save_overflow()
  line_up_all(ahead)
  return stays
end
