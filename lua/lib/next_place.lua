-- A place in line behind all that came so far.
local places_taken, places_from = 0, tonumber(rules[5] or '0')
local function next_place()
  places_taken = places_taken + 1
  return places_from + places_taken
end
local function save_places()
  for _, counter in ipairs(places_taken > 0 and {'n', 'gone', 'skipped'} or {}) do
    redis.call('HINCRBY', meta, counter, places_taken)
  end
end
