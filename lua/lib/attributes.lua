-- What a message carries beside its payload: " x<deadline ms> t<due ms> i<original id> c<deliveries before a redrive>".
local function attributes_of(fields)
  return fields[1] == 'k' and fields[5] == 'm' and fields[6] or ''
end
