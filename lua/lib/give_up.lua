-- The look that is given up on may still be under way: see lib/void. The last 60 of them are noted, for two minutes.
if last_asked == '' and not string.find(given_up, ':', 1, true) then
  local until_when, others = string.match(redis.call('HGET', meta, 'void') or '0|', '^(%d+)|(.*)$')
  others = tonumber(until_when) > now and others or ''
  redis.call('HSET', meta, 'void', string.format('%.0f|%s,%s', now + 120000, given_up, string.sub(others, 1, 1400)))
end
