-- What a call writes of shard keys, each at the end of its run.
--- @include lib/overflow
local CHUNK = 64
local appended, written_at = {}, ':d:' .. string.sub(prefix, 1, -2)
local function append_run(key, hand, numbers)
  local start, about = text_of(#key) .. ':' .. key .. ':', ':' .. hand .. written_at
  for from = 1, #numbers, CHUNK do
    local list = numbers[2] and table.concat(numbers, ',', from, math.min(#numbers, from + CHUNK - 1)) or numbers[1]
    appended[#appended + 1], appended[#appended + 2] = '0', start .. ordered(list) .. about
  end
end
local function save_runs()
  if #appended > 0 then redis.call('ZADD', overflow, unpack(appended)) end -- at most 500: a write
end
