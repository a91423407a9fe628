-- The epoch and the settings that calls heed, as one text in the state: behind the epoch a letter and a value for each
-- setting that is not as usual. Parsed once for each text.
--   w window (default 1; 0: no accounts)   c max_in_flight   r rate,burst   B max_backlog   p 1: parents
--   t total_in_flight   T total_rate,total_burst   L max_len   j journal   D max_deliveries (16)   M max_dead (100000)
--   x 1: the oldest dead letter makes room   K max_dedup (1000000)   k 1: all shard keys share dedup keys   g legacy
--   group   f 1: turns are fair in messages alone   P plans, "name,max_in_flight,rate,burst,weight;..."
Rules.WITHOUT_WINDOW = 1000000000 -- no shard key has as many: accounts are kept for the limits alone

Rules.known = {} -- by text
local known_bytes = 0

local function parse_bucket(text)
  local rate, burst = match(text or '', '^([%d.e+-]+),(%d+)$')
  rate, burst = tonumber(rate or 0), tonumber(burst or 0)
  if rate > 0 and burst == 0 then burst = max(1, ceil(rate)) end
  return rate, burst
end

-- Reads plans: limits by name that many tenants share. '' is as the queue says.
local function parse_plans(text)
  local plans = {}
  for name, cap, rate, burst, weight in gmatch(text or '', '([^,;]+),([^,]*),([^,]*),([^,]*),(%d+)') do
    plans[name] = {cap, rate, burst, weight}
  end
  return plans
end

local function parse_rules(text)
  local epoch, settings = match(text, '^(%S+) (.*)$')
  local found = {}
  for letter, value in gmatch(settings, '(%a)(%S+)') do found[letter] = value end
  local number = function(letter, default) return tonumber(found[letter] or default) end
  local rate, burst = parse_bucket(found.r)
  local total_rate, total_burst = parse_bucket(found.T)
  local cap = number('c', 0)
  local total_cap = number('t', 0)
  return {
    epoch = epoch, window = number('w', 1), cap = cap, rate = rate, burst = burst, backlog = number('B', 0),
    parents = found.p == '1',
    total_cap = total_cap, total_rate = total_rate, total_burst = total_burst, max_len = number('L', 0),
    journal = number('j', 0), deliveries = number('D', 16), max_dead = number('M', 100000), drops_dead = found.x == '1',
    max_dedup = number('K', 1000000), shares_keys = found.k == '1', is_by_messages = found.f == '1',
    legacy_group = found.g, plans = parse_plans(found.P),
    for_all = cap > 0 or rate > 0, has_total = total_cap > 0 or total_rate > 0,
  }
end

function Rules.rules_of(text)
  local rules = Rules.known[text]
  if rules then return rules end
  rules = parse_rules(text)
  -- The text has the epoch, so each change of settings makes a new one.
  known_bytes = keep(Rules.known, known_bytes, text, rules)
  return rules
end

-- Writes the text again, as the settings in the state say.
function Rules.compile_rules(meta)
  local s = call('HMGET', meta, 'window', 'max_in_flight', 'rate', 'burst', 'max_backlog', 'parents', 'total_in_flight',
    'total_rate', 'total_burst', 'max_len', 'journal', 'max_deliveries', 'max_dead', 'drop_dead', 'max_dedup',
    'key_scope', 'legacy_group', 'accounts', 'epoch', 'fair', 'plans')
  for at = 1, 15 do s[at] = s[at] or '0' end
  local parts, window = {}, s[1]
  local note = function(letter, value, usual)
    if value and value ~= usual then parts[#parts + 1] = letter .. value end
  end
  -- `accounts` is never taken back: messages that were counted must be discounted, also when the window is off.
  if s[18] ~= '1' then window = '0' elseif window == '0' then window = format('%d', Rules.WITHOUT_WINDOW) end
  note('w', window, '1')
  note('c', s[2], '0')
  if s[3] ~= '0' then note('r', s[3] .. ',' .. s[4]) end
  note('B', s[5], '0')
  note('p', s[6], '0')
  note('t', s[7], '0')
  if s[8] ~= '0' then note('T', s[8] .. ',' .. s[9]) end
  note('L', s[10], '0')
  note('j', s[11], '0')
  note('D', s[12], '16')
  note('M', s[13], '100000')
  note('x', s[14], '0')
  note('K', s[15], '1000000')
  if s[16] ~= 'shard_key' then note('k', '1') end
  note('g', s[17], false)
  if s[20] == 'messages' then note('f', '1') end
  note('P', s[21], '')
  call('HSET', meta, 'rules', s[19] .. ' ' .. concat(parts, ' '))
end

-- The queue moves on to this epoch.
function Rules.set_epoch(meta, epoch)
  call('HSET', meta, 'epoch', epoch, 'rules', epoch .. match(call('HGET', meta, 'rules'), ' .*$'))
end

-- Returns the part of a shard key before its first '/'; all of one that begins with it.
function Rules.parent_of(key) return match(key, '^[^/]+') or key end

-- Returns whose account a message is on: that of its shard key, or with parents that of its parent.
function Rules.owner_of(rules, key)
  if rules.parents then return Rules.parent_of(key) end
  return key
end
