-- Hand out messages straight from the overflow.
local groups
local function hand_out_held(about, id, entry)
  local fields = entry and entry[2]
  examined = examined + 1
  if not entry then
    gone, vanished = gone + 1, vanished + 1
    if log then log.note('z', id .. '-d', '', 0) end
  elseif #fields > 4 and lapsed(fields) then
    redis.call('XDEL', later, id)
    gone, expired = gone + 1, expired + 1
    if log then log.body('x', 'd', id, fields, 0) end
  else
    local group = groups[about.hand]
    if not group then
      group = {}
      groups[about.hand], first_time[#first_time + 1], first_time[#first_time + 2] = group, 'd:' .. about.hand, group
    end
    group[#group + 1] = entry
    lease('d:' .. id .. first_holder .. ':' .. about.hand .. ':' .. fields[2])
    pass(fields[2], true, nil)
  end
end
deliver_held = function(items)
  local fresh, lining = {}, {}
  groups = {}
  save_overflow()
  for _, item in ipairs(items) do
    local about = item[2]
    local id = about.ms .. '-' .. item[1]
    if about.place ~= 'd' then -- given back, to a stream that may not be declared
      local tenant = tenant_of(about.key)
      count_tenant(tenant, 1, 0)
      lining[#lining + 1] = lined(tenant, item)
    elseif about.more then
      deliver('d:' .. id, nil, redis.call('HGET', attempts, 'd:' .. id))
    else
      fresh[#fresh + 1] = {item[1], id, about}
    end
  end
  line_up_all(lining)
  any_returned = any_returned or #lining > 0
  local handles = {}
  for at, each in ipairs(fresh) do handles[at] = 'd:' .. each[2] end
  load_bodies(handles)
  for _, each in ipairs(in_order(fresh)) do
    hand_out_held(each[3], each[2], bodies[each[2]] or redis.call('XRANGE', later, each[2], each[2])[1])
  end
end
