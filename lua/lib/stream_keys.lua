-- The declared stream keys by stream number: `numbers` is "3,17,l", `names` the keys in the same order.
-- "l" is the legacy stream; its turn comes after the last stream, so it is filed under the ring's end too.
--- @include lib/legacy
local function stream_keys(numbers, names, first)
  local keys, order = {}, {}
  local at = first
  for number in string.gmatch(numbers, '[^,]+') do
    keys[number] = names[at]
    order[#order + 1] = number
    at = at + 1
  end
  keys[LEGACY] = keys['l']
  return keys, order
end
