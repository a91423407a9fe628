-- Admission: messages leave the overflow for the redelivery queue when their shard keys have room.
--- @use accounts, window, overflow, redelivery
local MOST_ADMITTED = 100

-- Returns a message that is admitted, with the stream that it stays in: where its shard key was handed a message out of a
-- stream that is empty now, the next one goes there, since that stream is as short as any.
local function keep_stream(q, account, item)
  local stream = item.place == 'd' and account.stream
  if stream and q.lengths[stream] == 0 and string.find(',' .. item.shard .. ',', ',' .. stream .. ',', 1, true) then
    item.stream = stream
  end
  account.stream = false
  return item
end

-- Admits messages of all accounts that this call has loaded, as many as they have room for. Where there are few accounts, all
-- together get MOST_ADMITTED at most, else one each. Who had room has something in the streams then, and is looked at again
-- when that leaves; so nobody is left behind by the bound. Returns whether any was admitted.
local function admit_held(q)
  local admitted, most = {}, math.max(1, math.floor(MOST_ADMITTED / math.max(1, #q.accounts)))
  for _, account in ipairs(q.accounts) do
    local room = account.held > 0 and math.min(find_room(q, account), account.held, most) or 0
    if room > 0 then
      local items = take_held(q, account, room)
      count_messages(q, account, #items, 0)
      for _, item in ipairs(items) do admitted[#admitted + 1] = keep_stream(q, account, item) end
    end
  end
  save_taken(q)
  enqueue_messages(q, admitted)
  return #admitted > 0
end

-- Begins a call that may admit messages: nothing is taken out of the overflow or put into the redelivery queue yet.
local function prepare_admission(q)
  read_rules(q)
  q.gone_members, q.left_members, q.stream_lists, q.positions_taken = {}, {}, {}, 0
end

-- Ends a call that changed accounts: admits what has room now, and writes down what changed.
local function close_accounts(q)
  admit_held(q)
  save_accounts(q)
  save_positions(q)
end
