-- This look may have been given up on, and what it was granted given back, while it was still under way: then it hands out
-- nothing, since nobody would know of it. `recover` says so, in "until when|holder,holder,..."; what is over is forgotten.
if state[9] then
  if string.find(state[9], holder, 1, true) then return {'VOID', now, state[1], -1, '', {}, {}} end
  if tonumber(string.match(state[9], '^%d+')) < now then redis.call('HDEL', meta, 'void') end
end
