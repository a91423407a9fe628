-- The redelivery queue, the sorted set `returned`: messages that wait for another delivery beside the new ones of a stream. A
-- score is stream number * 2^40 + position. The position is the number in the message's id, so that it stands where it stood;
-- or the next number of the queue, for one that has to stand behind all that came so far; or 0, ahead of all.
local POSITIONS = 1099511627776
