-- Shares of a bound that all tenants have in common: how much of it each uses. The state has a field for each tenant
-- while it uses some: 'D:' and a shard key (with parents: a parent) how many dedup and unique keys, 'X:' how many dead
-- letters and which ("count first last": see dead_letters.lua), 'R:' how many bytes of results, 'H:' how many stored
-- schedules. A tenant's account says what it uses of `max_len`.
--   A dynamic threshold (A. K. Choudhury, E. L. Hahne, Dynamic Queue Length Thresholds for Shared-Memory Packet
-- Switches, 1998): a tenant that uses four times what is free gets no more, so one alone gets four fifths, and k greedy
-- ones leave 1 / (1 + 4k) to newcomers. Nobody is ranked, and nobody's data makes room for another's.
--   Greedy ones who come one after the other would leave nothing: each takes four fifths of what is left. So the last
-- part of a bound is only for tenants that use less than a small fraction of what is free of it. There each one leaves
-- nearly all to those who come later, and a tenant that uses nothing gets a place as long as there is one.
local FREE_TIMES = 4
local LAST_PART = 25 -- the last part is a twenty-fifth of the bound, if that has a place for each fraction of it
local LAST_FRACTION = 16

-- Says whether a tenant that uses this much of a bound may use `more` of what is free.
function Shares.may_use(used, free, more, bound)
  if more > free or used >= FREE_TIMES * free then return false end
  local part = floor(bound / LAST_PART)
  return part < LAST_FRACTION or free - more >= part or LAST_FRACTION * used < free
end

-- Looks up the fields that this call does not know yet, by one look. Nobody uses more than all do (`all`, if known): if
-- the keys of Redis were deleted that a share counts, it is wrong, and this mends it.
function Shares.load(q, kind, owners, all)
  local fields, seen = {}, {}
  if not q.shares then q.shares = {} end
  for _, owner in ipairs(owners) do
    local field = kind .. owner
    if q.shares[field] == nil and not seen[field] then
      fields[#fields + 1], seen[field] = field, true
    end
  end
  if #fields == 0 then return end
  local texts = call('HMGET', q.keys[META], unpack(fields)) -- at most 1,004: the messages of a write, or what has ended
  for at, field in ipairs(fields) do
    local text = texts[at]
    q.shares[field] = text
    if all and text and text + 0 > all then Shares.put(q, kind, sub(field, #kind + 1), all > 0 and all) end
  end
end

-- Returns what is written of a tenant; false if nothing is.
function Shares.text_of(q, kind, owner)
  local text = q.shares and q.shares[kind .. owner]
  if text ~= nil then return text end
  Shares.load(q, kind, {owner})
  return q.shares[kind .. owner]
end

function Shares.used(q, kind, owner) return tonumber(Shares.text_of(q, kind, owner) or 0) or 0 end

-- Notes what is written of a tenant from now on, false for nothing.
function Shares.put(q, kind, owner, text)
  local changed = q.changed_shares
  if not changed then
    changed = {}
    q.changed_shares = changed
  end
  local field = kind .. owner
  q.shares[field], changed[field] = text, true
end

function Shares.count(q, kind, owner, number)
  local used = Shares.used(q, kind, owner) + number
  Shares.put(q, kind, owner, used > 0 and used)
end

-- Notes in the state what has changed. Before `save_state`.
function Shares.note(q)
  for field in pairs(q.changed_shares) do
    local text = q.shares[field]
    if text then State.put(q, field, text) else State.unset(q, field) end
  end
  q.changed_shares = nil
end

-- Writes the changes down, for a call that changes nothing else of the state.
function Shares.save(meta, q)
  if not q.changed_shares then return end
  local used, unused = {}, {}
  for field in pairs(q.changed_shares) do
    local text = q.shares[field]
    if text then used[#used + 1], used[#used + 2] = field, text else unused[#unused + 1] = field end
  end
  if #used > 0 then call('HSET', meta, unpack(used)) end -- at most 2,008: a tenant for each key that has ended
  if #unused > 0 then call('HDEL', meta, unpack(unused)) end -- at most 1,004: the same
  q.changed_shares = nil
end
