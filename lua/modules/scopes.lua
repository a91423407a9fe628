-- Whose a dedup key or unique key is. By default it belongs to its shard key: of two tenants that use the same words, none
-- meets what the other one wrote. With `key_scope` = "queue" all shard keys share them. A gateway's ids have a scope of
-- their own, in either case.

-- Returns a key as it is remembered. The length in front keeps a shard key and a key apart, whatever bytes they have.
local function scope_key(scope, shard_key, key)
  if scope == 'shard_key' then return #shard_key .. ':' .. shard_key .. key end
  return key
end

-- Spells the keys in the options of a message as they are remembered; the dedup key with its kind, which says the scope.
local function scope_keys(scope, shard_key, option)
  if option.unique_key ~= '' then option.unique_key = scope_key(scope, shard_key, option.unique_key) end
  if option.dedup_key ~= '' then
    option.dedup_key = option.is_own and 'g:' .. option.dedup_key
      or 'k:' .. scope_key(scope, shard_key, option.dedup_key)
  end
end
