-- Later than any deadline: the score of sentinels.
local NEVER = 9e15
