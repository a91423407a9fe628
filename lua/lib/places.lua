-- The line of messages that wait for their stream's turn beside the new ones. Scores are turn * 2^40 + position: the number in
-- a message's id, so that it stands where it stood, or another of the queue's own count of messages, given back to the
-- counters as `skipped`, for one that has to stand behind all that came so far; 0 is ahead of all.
local PLACES = 1099511627776
