"""A file that declares queues: how it is read, and how it differs from what Redis has.

`declaration` has what a file says, `changes` compares that with Redis, and `feasible` tells what a queue cannot become.
"""

from __future__ import annotations

from shardq.declared.changes import Change, Found, of_queue, of_router
from shardq.declared.declaration import Declaration, DeclaredQueue, parsed

__all__ = ["Change", "Declaration", "DeclaredQueue", "Found", "of_queue", "of_router", "parsed"]
