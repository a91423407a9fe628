-- What others wrote may have any number of fields. Lua hands no more than 8,000 values to a command, so an entry with
-- more stays where it is: it can be delivered and acked, but not be moved.
local MOST_FIELDS = 7000
