-- Lua hands no more than 8,000 values to a command, and to each of a list with more in several: so much at once.
local PART = 4000
local function in_parts(list, act)
  for from = 1, #list, PART do act(from, math.min(#list, from + PART - 1)) end
end
