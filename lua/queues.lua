#!lua flags=no-writes
-- queues: a page of the list of queues, in the order of their names.
-- KEYS[1] queues: names of queues
-- ARGV[1] after: the name that the page begins behind; '' = the start
-- ARGV[2] most: names
-- Reply: {name, ...}
local queues, after, most = KEYS[1], ARGV[1], ARGV[2]
return redis.call('ZRANGEBYLEX', queues, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, most)
