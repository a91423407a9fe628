-- The legacy stream's number in the ring of turns: after the last stream there can be.
local LEGACY = '4096'
