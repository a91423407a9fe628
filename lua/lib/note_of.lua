-- The counterpart of `told_by`, kept as "count@since|streams|last error": since (now if not given) is when it becomes
-- deliverable again, in ms.
local function note_of(count, hand, last_error, since)
  return count .. '@' .. string.format('%.0f', math.max(0, since or now)) .. '|' .. hand .. '|' .. last_error
end
