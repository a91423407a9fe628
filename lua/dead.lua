#!lua flags=no-writes
-- dead: list dead letters, oldest first.
-- KEYS[1] dead: dead letters
-- ARGV[1] after: entry id to go on after, '-' for the start
-- ARGV[2] most: how many
-- Reply: {{entry id, {field, value, ...}}, ...}
local dead = KEYS[1]
local from = ARGV[1] == '-' and '-' or '(' .. ARGV[1]
return redis.call('XRANGE', dead, from, '+', 'COUNT', ARGV[2])
