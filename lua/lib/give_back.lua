-- Make a message deliverable again in its stream's turn; one from the store goes to the shortest stream of its hand.
-- `key` is the shard key of one that counts in the admission window: without room there it is held back.
--- @include lib/counts
--- @include lib/legacy
--- @include lib/line
--- @include lib/turn_of
--- @include lib/tenants
--- @include lib/room
--- @include lib/hold_back
--- @include lib/let_in
--- @include lib/next_place
local function give_back(handle, place, hand, key)
  if not key then
    line_up(handle, turn_of(place, hand), 0)
  elseif let_in(handle, key, hand) then
    line_up(handle, turn_of(place, hand), next_place())
  end
end
