#!lua flags=no-writes
-- dead: list dead letters, oldest first.
-- KEYS[1] dead: dead letters
-- ARGV[1] after: entry id to go on after, '-' for the start
-- ARGV[2] most: how many
-- Reply: {{entry id, {field, value, ...}}, ...}
local dead, after, most = KEYS[1], ARGV[1], ARGV[2]
return redis.call('XRANGE', dead, after == '-' and '-' or '(' .. after, '+', 'COUNT', most)
