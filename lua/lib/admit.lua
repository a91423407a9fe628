-- Out of the overflow and into the line. What was handed out of a stream that is empty now is followed there: it is as
-- short as any.
--- @include lib/next_place
--- @include lib/withdraw
--- @include lib/line_up_all
local function lined(tenant, item)
  local stays = item[2] == 'd' and tenant.turn
  if stays and undelivered[stays] == 0 and string.find(',' .. item[3] .. ',', ',' .. stays .. ',', 1, true) then
    item[4] = stays
  end
  tenant.turn = false
  return item
end
-- As many as there are accounts, or so many: more than one each, where there are few. Who had room has something in the
-- streams then, and is met again when that leaves; so nobody is left behind by the bound.
local ADMITTED = 100
local function admit_all()
  local all, most = {}, math.max(1, math.floor(ADMITTED / math.max(1, #accounts)))
  for _, tenant in ipairs(accounts) do
    local room = tenant.held > 0 and math.min(room_of(tenant), tenant.held, most) or 0
    if room > 0 then
      local items = withdraw(tenant, room)
      count_tenant(tenant, #items, 0)
      for _, item in ipairs(items) do all[#all + 1] = lined(tenant, item) end
    end
  end
  save_overflow()
  line_up_all(all)
  return #all > 0
end
local function close_accounts()
  admit_all()
  save_tenants()
  save_places()
end
