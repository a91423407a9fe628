"""What is said to Redis, and how its answers read: keys, scripts, lease tokens, replies, the journal's entries."""
