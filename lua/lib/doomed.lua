-- Before the streams that a message may go to: it was rejected and waits for room among the dead letters.
local DOOMED = '-'
