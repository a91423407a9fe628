#!lua flags=no-writes
-- dead: list dead letters, oldest first.
-- KEYS[1] meta: whether there is a queue
-- KEYS[2] dead: dead letters
-- ARGV[1] after: entry id to go on after, '-' for the start
-- ARGV[2] most: how many
-- Reply: {{entry id, {field, value, ...}}, ...} | 'NOQUEUE'
local meta, dead, after, most = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if not redis.call('HGET', meta, 'epoch') then return 'NOQUEUE' end
return redis.call('XRANGE', dead, after == '-' and '-' or '(' .. after, '+', 'COUNT', most)
