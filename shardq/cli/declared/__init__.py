"""A file that declares queues: how it is read, how it differs from what Redis has, and how it is written.

`declaration` has what a file says, `changes` compares that with Redis and carries out the differences, `feasible` tells
what a queue cannot become, and `export` writes a file.
"""

from __future__ import annotations

from shardq.cli.declared.changes import Change, changes, settings_of
from shardq.cli.declared.declaration import Declaration, DeclaredQueue, parsed
from shardq.cli.declared.export import exported

__all__ = ["Change", "Declaration", "DeclaredQueue", "changes", "exported", "parsed", "settings_of"]
