#!lua
-- bind: add bindings to a router, or remove them. Each that changes moves the version by one and is one entry of the
-- stream of changes, whose id is that version: who follows sees a gap. The stamp, the time of the last change, is in
-- that entry, too: when Redis lost its last changes and made others, their versions are the same and the stamps are not.
-- KEYS[1] bindings: 'pattern queue' by member; under '' the version, under ' ' the stamp
-- KEYS[2] changes: what followers read
-- ARGV[1] verb: '+' | '-'
-- ARGV[2] most: how many bindings there may be
-- ARGV[3] kept: about how many changes are kept for followers; with more bindings so many, at most ten times as many:
--   who is further behind than there are bindings is quicker by loading them
-- ARGV[4] seen: the version that the caller knows
-- ARGV[5..] members: 'pattern queue'
-- Reply: {'OK', version, {0 | 1, ...}} | {'MOVED', version} if one of them changed since | {'FULL', bindings}
--        | {'DAMAGED', version}
local bindings, changes = KEYS[1], KEYS[2]
local verb, most, kept = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local count = redis.call('HLEN', bindings)
redis.call('XLEN', changes)
if verb == '+' and count - 2 + #ARGV - 4 > most then
  local new = 0
  for i = 5, #ARGV do new = new + 1 - redis.call('HEXISTS', bindings, ARGV[i]) end
  if count - 2 + new > most then return {'FULL', count - 2} end
end
kept = math.max(kept, math.min(count, 10 * kept))
local time = redis.call('TIME')
local stamp, version = time[1] .. '.' .. time[2], '0'
local last_stamp = redis.call('HGET', bindings, ' ')
if last_stamp then
  version = redis.call('HGET', bindings, '') or ''
  if not string.match(version, '^%d+$') or #version > 15 then return {'DAMAGED', version} end
end
--- @include lib/moved
if is_moved(tonumber(version), tonumber(ARGV[4])) then return {'MOVED', version} end
if not last_stamp then
  redis.call('DEL', changes)
  redis.call('XADD', changes, '0-1', '', '')
  redis.call('XDEL', changes, '0-1')
  redis.call('HSET', bindings, '', 0, ' ', stamp)
end

local results = {}
for i = 5, #ARGV do
  local done
  if verb == '+' then
    done = redis.call('HSETNX', bindings, ARGV[i], 1)
  else
    done = redis.call('HDEL', bindings, ARGV[i])
  end
  if done == 1 then
    version = string.format('%.0f', redis.call('HINCRBY', bindings, '', 1))
    local id = version .. '-0'
    local added = redis.pcall('XADD', changes, 'MAXLEN', '~', kept, id, verb, ARGV[i], '', stamp)
    if type(added) == 'table' and added.err then -- something else wrote entries that are later: who follows loads all
      redis.call('DEL', changes)
      redis.call('XADD', changes, id, verb, ARGV[i], '', stamp)
    end
    last_stamp = stamp
  end
  results[#results + 1] = done
end
redis.call('HSET', bindings, ' ', last_stamp or stamp) -- also if nothing changed: WAIT waits for what a call wrote
return {'OK', version, results}
