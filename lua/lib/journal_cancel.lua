-- What becomes of the message.
local function tell(kind, fields)
  if not log then return end
  log.body(kind, place, id, fields, 0)
  log.write(ARGV[4])
end
