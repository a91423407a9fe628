-- The member of a run that this number lies in, or would: itself, its numbers, and what else it says.
--- @include lib/overflow
local function run_of(key)
  return #key .. ':' .. key .. ':'
end
local function around(run, number)
  local upto = '(' .. run .. ordered(number) .. ';'
  local member = redis.call('ZREVRANGEBYLEX', overflow, upto, '[' .. run, 'LIMIT', 0, 1)[1]
  local list, about = string.match(string.sub(member or '', #run + 2), '^([%d,]+):(.*)$')
  local numbers = {}
  for each in string.gmatch(list or '', '%d+') do numbers[#numbers + 1] = each end
  return member, numbers, about
end
