-- Lists that are longer than what Lua hands to a command.

-- Calls `act(from, upto)` for one part of a list after the other. Lua hands no more than 8,000 values to a command.
local function act_in_parts(list, act)
  for from = 1, #list, 4000 do act(from, math.min(#list, from + 3999)) end
end

-- Returns a whole number as text, made once in a call: that takes as long as ten looks into a table.
local function spell_number(q, number)
  local text = q.texts[number]
  if not text then
    text = string.format('%d', number)
    q.texts[number] = text
  end
  return text
end
