-- Ended leases and due messages become deliverable again.
-- When the server's clock ran ahead of the caller's, leases end early by that clock: reaping pauses for one lease time.
--- @include lib/take_due
local due_again, any_cancelled = {}, false
local function reap()
  for _, item in ipairs(end_leases(take_all_due('l', leases), any_cancelled)) do
    if item then
      item[11], due_again[#due_again + 1] = 'lease ended', item
      if log then log.lease('l', item[2], string.match(item[1], ':(.*)$'), item[10], item[7] or nil) end
    end
  end
  note_all(due_again)
end
local function promote()
  local handles = take_all_due('d', delayed)
  if #handles == 0 then return end
  local known, owned = redis.call('HMGET', attempts, unpack(handles)), redis.call('HMGET', owners, unpack(handles))
  for at, handle in ipairs(handles) do
    local place, ms, number = string.match(handle, '^(%w+):(%d+)%-(%d+)$')
    local _, hand = told_by(known[at])
    due_again[#due_again + 1] =
      {handle, place, hand, false, false, known[at] and true, fair and owned[at] or false, tonumber(ms), tonumber(number)}
  end
  redis.call('HDEL', owners, unpack(handles))
end
if ended or came_due or others_due then
  check_types(nil)
  any_cancelled = redis.call('SCARD', cancelled) > 1
  redis.call('ZCARD', due)
end
if (ended or others_due) and ARGV[4] ~= '' then
  local hold = tonumber(state[5])
  if now > tonumber(ARGV[4]) then
    hold = now + visibility
    redis.call('HSET', meta, 'hold', hold)
  end
  if now >= hold then reap() else paused_until = hold end
end
if came_due or others_due then promote() end
give_back_all(due_again)
any_returned = redis.call('ZCARD', returned) > 1
