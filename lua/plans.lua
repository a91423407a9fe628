-- Plans: limits by name that many tenants share. The state has all of them as one text ('plans', which the rules
-- repeat, so no call looks for them), and under 'G:' and a name how many tenants are on it. An account names its plan
-- (see limits.lua), so a plan that changes visits nobody.
local MOST_PLANS = 64
local OF_A_PLAN = {'max_in_flight', 'rate', 'burst', 'weight'} -- what it says, in this order

-- Returns the plans of the text in their order, each as "name,max_in_flight,rate,burst,weight", without one.
local function others_of(text, name)
  local others = {}
  for each in gmatch(text, '[^;]+') do
    if match(each, '^[^,]*') ~= name then others[#others + 1] = each end
  end
  return others
end

-- Looks at the limits of a plan: a bad one would be heeded in each call that meets a tenant of it.
local function check_limits(text)
  if text == '' then return end
  local cap, rate, burst, weight = match(text, '^([^,]*),([^,]*),([^,]*),([^,]*)$')
  if not cap then Arguments.refuse('argument 5 is no limits of a plan') end
  Arguments.check({cap, rate, burst, weight}, {'limit', 'rate', 'limit', 'weight'})
end

-- Notes that a plan was set, with what it says, or deleted.
local function note_plan(q, name, limits)
  if not q.events then return end
  local values = {'plan', name}
  local at = 0
  for value in gmatch(limits ~= '' and limits .. ',' or '', '([^,]*),') do
    at = at + 1
    if value ~= '' then values[#values + 1], values[#values + 2] = OF_A_PLAN[at], value end
  end
  Journal.note_event(q, limits == '' and 'U' or 'P', '', '', 0, nil, Journal.spell_values(values))
end

-- @verb plan | allow-oom: change a plan, or delete it. It is in force with the next call, and readers look at those who
-- wait because of it, a piece each.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] who: the caller, and who asked for it (`Journal.who_of`)
-- ARGV[4] name: of the plan
-- ARGV[5] limits: "max_in_flight,rate,burst,weight", where '' is what the queue says; '' deletes it
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH' | 'PLAIN' where no message counts | 'NOPLAN' | 'MANY' | {'USED', by how many}
function verbs.plan(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'epoch', 'following', 'who', 'plan', 'any'})
  check_limits(ARGV[5])
  local answer = Queue.check_epoch(KEYS[META], ARGV[1], ARGV[2])
  if answer then return answer end
  local q = Settle.open_change(KEYS, 18, 'plans')
  if q.rules.window == 0 then return 'PLAIN' end
  Types.look_at_all(q)
  local meta, name, limits = KEYS[META], ARGV[4], ARGV[5]
  local plans = others_of(q.values[State.COMMON + 1] or '', name)
  if limits == '' then
    if not q.rules.plans[name] then return 'NOPLAN' end
    local users = tonumber(call('HGET', meta, 'G:' .. name) or 0)
    -- An account has only the plan's name: without the plan its limits would be gone, too.
    if users > 0 then return {'USED', users} end
    State.unset(q, 'G:' .. name)
  else
    if #plans >= MOST_PLANS then return 'MANY' end
    plans[#plans + 1] = name .. ',' .. limits
  end
  call('HSET', meta, 'plans', concat(plans, ';'))
  call('HSET', meta, 'epoch', ARGV[2])
  Rules.compile_rules(meta)
  q.rules = Rules.rules_of(call('HGET', meta, 'rules'))
  Queue.walk_for_rules(q)
  Notifications.notify_readers(q, min(q.behind, 1))
  note_plan(q, name, limits)
  Settle.close_change(q, ARGV[3])
  return 'OK'
end

-- @verb plans | no-writes: all plans, and how many tenants are on each.
-- KEYS[1] meta: the plans
-- Reply: {"name,max_in_flight,rate,burst,weight", number, ...} | 'NOQUEUE'
function verbs.plans(KEYS)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta'})
  local epoch, text = unpack(call('HMGET', KEYS[1], 'epoch', 'plans')) -- at most 2: the fields
  if not epoch then return 'NOQUEUE' end
  local found = {}
  for each in gmatch(text or '', '[^;]+') do
    local users = call('HGET', KEYS[1], 'G:' .. match(each, '^[^,]*'))
    found[#found + 1], found[#found + 2] = each, tonumber(users or 0)
  end
  return found
end
