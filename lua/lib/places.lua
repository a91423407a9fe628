-- Scores of what waits in line: turn * 2^40 + position.
local PLACES = 1099511627776
