-- A lane that counts the messages of a bulk write: "batch|first|next|ms|mark" says that this call holds the messages
-- from `first` up to before `next` of that batch, for how long to remember it, and what tells the last one from others.
-- What comes out of turn, since it was stored before or something before it was not, is not stored: the reply says how
-- far the batch is.
local batch, from, upto, keep, last_mark = string.match(ARGV[3], '^(%d+)|(%d+)|(%d+)|(%d+)|(%w*)$')
local known = redis.call('HGET', dedup, lane) or '0|0|0|'
local ends, stored, at_batch, at_mark = string.match(known, '^(%d+)|(%d+)|(%d+)|(%w*)$')
local there = at_batch == batch and tonumber(stored) or 0
if tonumber(at_batch) > tonumber(batch) or there ~= tonumber(from) then return {'COUNTED', at_batch, stored, at_mark} end
lane_ends, lane_window, sequence, tally = tonumber(ends), tonumber(keep), tonumber(upto), batch .. '|' .. last_mark
