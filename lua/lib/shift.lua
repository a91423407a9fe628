-- Where in `due` the times of a kind of bucket begin: of the leases, of what is delayed.
--- @include lib/span
local SHIFT = {l = 0, d = SPAN}
