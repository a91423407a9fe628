"""The protocol between clients and Redis: keys, scripts, lease tokens, replies, and entries of the journal."""
