-- Undelivered messages per stream, of those streams that this call has loaded.
local undelivered = {}
