-- What a lease token and what is noted say of a message: the streams that it may go to, its shard key (false unless it
-- counts), its last error.
--- @include lib/owner_in
local function owner_of_lease(token, handle)
  local hand, key = owner_in(token)
  local _, noted, last_error = attempts_of(handle)
  return noted ~= '' and noted or hand, fair and key, last_error
end
