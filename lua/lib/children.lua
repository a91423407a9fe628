-- The children of a parent, such as "acct-7/user-9" of "acct-7", take turns in its overflow (start-time fair queueing:
-- Goyal, Vin, Cheng 1996). Of each that has something held one member says when its turn is: "tlength:parent:tag:child".
local function turns_of(name)
  return 't' .. #name .. ':' .. name .. ':'
end
local child_of, count_child
if parents then
--- @include lib/child_turns
end
