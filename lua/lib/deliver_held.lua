-- Hand out messages straight from the overflow.
local groups
local function hand_out_held(id, hand, entry)
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
    local group = groups[hand]
    if not group then
      group = {}
      groups[hand], first_time[#first_time + 1], first_time[#first_time + 2] = group, 'd:' .. hand, group
    end
    group[#group + 1] = entry
    lease('d:' .. id .. first_holder .. ':' .. hand .. ':' .. fields[2], fields[2])
    if cap > 0 then pass(fields[2], true, nil) end
  end
end
deliver_held = function(items)
  local fresh, known, lining, handles = {}, {}, {}, {}
  groups = {}
  save_overflow()
  for _, item in ipairs(items) do
    if item[2] ~= 'd' then -- given back, to a stream that may not be declared
      local tenant = tenant_of(item[7])
      count_tenant(tenant, 1, 0)
      lining[#lining + 1] = lined(tenant, item)
    elseif item[6] then
      known[#known + 1], handles[#handles + 1] = item, item[1]
    else
      fresh[#fresh + 1] = item
    end
  end
  line_up_all(lining)
  any_returned = any_returned or #lining > 0
  local notes = #known > 0 and notes_on(handles) or {}
  for _, item in ipairs(fresh) do handles[#handles + 1] = item[1] end
  load_bodies(handles)
  for at, item in ipairs(known) do deliver(item[1], nil, notes[at], item[3]) end
  for _, item in ipairs(fresh) do
    local id = string.sub(item[1], 3)
    hand_out_held(id, item[3], bodies[id] or redis.call('XRANGE', later, id, id)[1])
  end
end
