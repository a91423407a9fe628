-- What a read seldom needs: the ways back into the queue, dead letters, the legacy stream, preferences, fairness.
--- @include lib/rules
--- @include lib/split_handle
--- @include lib/attempts_of
--- @include lib/note_attempts
--- @include lib/check
--- @include lib/check_all
--- @include lib/tenants
--- @include lib/bury
--- @include lib/limits
local limits = limits_of(ARGV[5], ARGV[6])
--- @include lib/room
--- @include lib/next_place
--- @include lib/children
--- @include lib/overflow
--- @include lib/line_up_all
--- @include lib/hand_out
if ended or came_due or others_due or owed > 0 or prefer ~= '' or not legacy_done then
--- @include lib/rare
end
if any_returned or fair then
--- @include lib/take_returned
  if fair then
--- @include lib/fair_read
  end
end
