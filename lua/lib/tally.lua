-- A lane that counts the messages of a bulk write: "batch|first|next|ms|mark|mark|most" says that this call holds the
-- messages from `first` up to before `next` of that batch, for how long to remember it, what tells the message before
-- them and the last of them from others, and how many such lanes there may be. What comes out of turn, since it was
-- stored before or something before it was not, or after another message than it should, is not stored: the reply says
-- how far the batch is.
local batch, from, upto, keep, mark_before, mark_of_last, most =
  string.match(ARGV[3], '^(%d+)|(%d+)|(%d+)|(%d+)|(%w*)|(%w*)|(%d+)$')
local known = redis.call('HGET', dedup, lane)
local ends, stored, at_batch, at_mark = string.match(known or '0|0|0|', '^(%d+)|(%d+)|(%d+)|(%w*)$')
local there = at_batch == batch and tonumber(stored) or 0
local fits = tonumber(at_batch) <= tonumber(batch) and there == tonumber(from)
if not fits or there > 0 and at_mark ~= mark_before then
  redis.call('HSET', meta, 'ms', state[3]) -- as in lib/lane
  return {'COUNTED', at_batch, stored, at_mark}
end
if not known and not is_room(tallies, tonumber(most)) then return {'FULL', 'max_tallies'} end
lane_index = tallies
lane_ends, lane_window, sequence, tally = tonumber(ends), tonumber(keep), tonumber(upto), batch .. '|' .. mark_of_last
