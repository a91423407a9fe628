-- Ended leases and due messages become deliverable again.
--- @include lib/jump
--- @include lib/clock
--- @include lib/take_due
--- @include lib/count_delayed
local due_again, any_cancelled = {}, false
local function reap(upto)
  local tokens = take_all_due('l', leases, upto)
  for at, item in ipairs(end_leases(tokens, any_cancelled)) do
    if item then
      item[11], item[12], due_again[#due_again + 1] = 'lease ended', math.min(now, tokens.times[at]), item
      if log then log.lease('l', item[2], string.match(item[1], ':(.*)$'), item[10], item[7] or nil) end
    end
  end
  just_noted = {}
  note_all(due_again, just_noted)
end
local function promote()
  local handles = take_all_due('d', delayed, now)
  if #handles == 0 then return end
  local known, owned = redis.call('HMGET', attempts, unpack(handles)), redis.call('HMGET', owners, unpack(handles)) -- at most 128
  local counted = {}
  for at = 1, fair and #handles or 0 do counted[#counted + 1] = owned[at] or nil end
  meet(counted)
  for _, key in ipairs(counted) do count_delayed(key, -1) end
  for at, handle in ipairs(handles) do
    local place, ms, number = string.match(handle, '^(%w+):(%d+)%-(%d+)$')
    local _, hand = told_by(known[at])
    due_again[#due_again + 1] =
      {handle, place, hand, false, false, known[at] and true, fair and owned[at] or false, tonumber(ms), tonumber(number)}
  end
  redis.call('HDEL', owners, unpack(handles)) -- at most 128
end
if ended or came_due or others_due then
  check_types(nil)
  any_cancelled = redis.call('SCARD', cancelled) > 1
  redis.call('ZCARD', due)
end
if (ended or others_due) and ARGV[4] ~= '' then
  local clock = clock_of(ARGV[4])
  jump = jump_after(clock, state[5] or '', now, visibility)
  reap(ended_by(clock, now))
end
if came_due or others_due then promote() end
give_back_all(due_again)
any_returned = redis.call('ZCARD', returned) > 1
