-- The rules of fairness, looked up once the queue has had any: window, cap, parents, weights; and the id counter.
local rules = {}
if fair then
  rules = redis.call('HMGET', meta, 'window', 'max_in_flight', 'parents', 'weighted', 'n', 'max_backlog', 'cap_no', 'walk')
end
