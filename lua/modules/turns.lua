-- Turns by weight: a shard key of weight w delivers w messages in its turn. What is due to it is delivered next: in this call,
-- or ahead of all in the redelivery queue of its stream, where the offset stays.
--- @use deliveries, fairness, keys, offset, overflow, redelivery, window

-- Takes from a stream like `take_any_of`. If the offset stayed at the stream for messages that are ahead of all, only these are
-- taken: others would begin turns of their own, for which the offset would stay again, and no other stream would ever come.
local function take_turn(q, number, most)
  local score = string.format('%.0f', number * POSITIONS)
  local ahead = redis.call('ZCOUNT', q.redelivery, score, score)
  take_any_of(q, number, ahead > 0 and math.min(ahead, most) or most)
end

-- Takes the next message of an account out of its overflow, to be ahead of all in a stream; nil if there is none. One that lies in
-- another stream goes there, behind all others.
local function take_ahead(q, account, number)
  local items = {}
  take_held(q, account, 1, items, true)
  local item = items[1]
  if not item then return nil end
  if item.place == 'd' or item.place == number then item.stream, item.position = number, 0 end
  return item
end

-- Delivers what is due to an account in its turn, as much as this call has room for.
local function deliver_turn(q, account)
  local most = math.min(account.due, account.held, q.count - q.found, room_by_limits(q, account))
  if most > 0 then
    local items = {}
    take_held(q, account, most, items)
    deliver_all_held(q, items)
    account.due = account.due - most
    count_left(q)
  end
  if account.held == 0 then account.due = 0 end
end

-- Ends the turns that began in a stream. Returns whether the offset stays there, since a turn goes on in the next call.
local function stays_for_turns(q, number)
  check_read_types(q, number)
  deliver_taken(q)
  count_left(q)
  local turns, ahead, stays = q.turns, {}, false
  q.turns = {}
  for _, account in ipairs(turns) do
    deliver_turn(q, account)
    if account.due > 0 and account.stream == number and find_room(q, account) > 0 then
      local item = take_ahead(q, account, number)
      ahead[#ahead + 1] = item
      stays = stays or item and item.position == 0
      save_taken(q)
    end
  end
  enqueue_messages(q, ahead)
  return stays
end
