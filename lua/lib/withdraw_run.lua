-- The first ones of a run, out of it, each {handle, place, streams, turn to stay in, whether ahead of all there, whether
-- more is known of it, shard key}. The overflow is changed by `save_overflow`, which must come before the same run is
-- looked at again.
--- @include lib/overflow
--- @include lib/parts
local taken_out, cut_off = {}, {}
local function save_overflow()
  in_parts(taken_out, function(from, upto) redis.call('ZREM', overflow, unpack(taken_out, from, upto)) end)
  in_parts(cut_off, function(from, upto) redis.call('ZADD', overflow, unpack(cut_off, from, upto)) end)
  taken_out, cut_off = {}, {}
end
local function withdraw_run(key, most, items)
  local run, wanted = text_of(#key) .. ':' .. key, #items + most
  local from, upto, members = '[' .. run .. ':', '(' .. run .. ';'
  repeat
    members = redis.call('ZRANGEBYLEX', overflow, from, upto, 'LIMIT', 0, math.min(wanted - #items, 8))
    for _, member in ipairs(members) do
      if #items == wanted then break end
      local numbers, hand, place, more, ms = string.match(member, '^([%d,]+):([%d,-]*):(%w+)(!?):(%d+)$', #run + 3)
      local start, known, at = place .. ':' .. ms .. '-', more ~= '', 1
      taken_out[#taken_out + 1] = member
      repeat
        local number, after = string.match(numbers, '^(%d+),?()', at)
        items[#items + 1], at = {start .. number, place, hand, false, false, known, key}, after
      until at > #numbers or #items == wanted
      if at <= #numbers then
        cut_off[#cut_off + 1] = '0'
        cut_off[#cut_off + 1] = run .. ':' .. ordered(string.sub(numbers, at)) .. ':' .. hand .. ':' .. place .. more .. ':' .. ms
      end
    end
    if #items < wanted and #members > 0 then from = '(' .. members[#members] end
  until #items == wanted or #members == 0
  if #taken_out > 1000 then save_overflow() end
end
