"""Deliver messages: read, read_many, blocked reads.

Begin with `read`. `look` is one look for messages, `command` makes the call and reads its reply, `acks` go ahead of it
in the same round trip. Blocked readers wait in `waiting`, and `pump` reads on behalf of all of them.
"""
