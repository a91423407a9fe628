-- The first ones of a run, out of it: {number, what its member says} each. The overflow is changed by `save_overflow`,
-- which must come before the same run is looked at again.
--- @include lib/overflow
local taken_out, cut_off = {}, {}
local function save_overflow()
  if #taken_out > 0 then redis.call('ZREM', overflow, unpack(taken_out)) end
  if #cut_off > 0 then redis.call('ZADD', overflow, unpack(cut_off)) end
  taken_out, cut_off = {}, {}
end
local function withdraw_run(key, most, items)
  local run, wanted = run_of(key), #items + most
  local from, upto, members = '[' .. run, '(' .. string.sub(run, 1, -2) .. ';'
  repeat
    members = redis.call('ZRANGEBYLEX', overflow, from, upto, 'LIMIT', 0, math.min(wanted - #items, 8))
    for _, member in ipairs(#items < wanted and members or {}) do
      if #items == wanted then break end
      local numbers, hand, place, more, ms = string.match(string.sub(member, #run + 2), '^([%d,]+):([%d,-]*):(%w+)(!?):(%d+)$')
      local about = {key = key, hand = hand, place = place, more = more ~= '', ms = ms}
      taken_out[#taken_out + 1], from = member, '(' .. member
      for number, after in string.gmatch(numbers, '(%d+)()') do
        items[#items + 1] = {number, about}
        if #items == wanted then
          local rest = string.sub(numbers, after + 1)
          if rest ~= '' then
            cut_off[#cut_off + 1] = 0
            cut_off[#cut_off + 1] = run .. ordered(rest) .. ':' .. hand .. ':' .. place .. more .. ':' .. ms
          end
          break
        end
      end
    end
  until #items == wanted or #members == 0
  if #taken_out > 1000 then save_overflow() end
end
