-- Fairness: what leaves the shared streams is put into the accounts, and what is held back comes in.
--- @include lib/admit
--- @include lib/bucket_head
--- @include lib/walk
local ends_by_key = {}
ends_of = function(key)
  local text = ends_by_key[key]
  if not text then
    text = timed('l', key, now + visibility)
    ends_by_key[key] = text
  end
  return text
end
save_ends = save_heads
-- A message that counts leaves its turn in the shared streams, handed out (then it is in flight) or otherwise; or it was
-- handed out straight from the overflow (without a turn). Noted when a round ends, all in one look.
local passed, outs, left_turns = {}, {}, {}
pass = function(key, out, turn)
  local at = #passed + 1
  passed[at], outs[at], left_turns[at] = key, out, turn or false
end
local due = {}
local function account()
  if #passed == 0 then return end
  meet(passed)
  for at, key in ipairs(passed) do
    local tenant, out, turn = tenant_of(key), outs[at], left_turns[at]
    if turn then
      count_tenant(tenant, -1, 0)
      tenant.turn = turn
    end
    if out and cap > 0 then tenant.flight = tenant.flight + 1 end
    if out and turn and linger and tenant.weight > 1 then
      tenant.due = tenant.due > 0 and tenant.due - 1 or tenant.weight - 1
      if not due[tenant] then due[#due + 1], due[tenant] = tenant, true end
    end
  end
  passed, outs, left_turns = {}, {}, {}
end
local straight, deliver_held
if count > 1 then
--- @include lib/straight
end
if weighted and admitted > 0 then
--- @include lib/linger
end
next_round = function(nothing)
  check_types(served)
  account()
  if found == count then return false end
  local any = straight and #turns_to_come(1) == 0 and straight()
  any = admit_all() or any
  while nothing and not any and walking > 0 and walked < 4 do
    walk_on()
    any = admit_all()
  end
  if nothing and not any and redis.call('ZCARD', overflow) > 1 then
    missed = walking > 0 -- there may be more: the caller looks again at once
    if not missed then
--- @include lib/mend
      any = admit_all()
    end
  end
  any_returned = redis.call('ZCARD', returned) > 1
  return any
end
close = function()
  account()
  if walking > 0 and walked == 0 then walk_on() end
  close_accounts()
end
