-- The timed indexes, leases and delayed. A score is bucket * 2^42 + time in ms: bucket 0 of what does not count in the
-- window, else one of 2,045 by the shard key. So who has many messages that come due together stands in a line of its own.
local SPAN = 4398046511104
