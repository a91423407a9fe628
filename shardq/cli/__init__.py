"""The command `shardq`: it parses the arguments, calls the client and prints. It has no logic of its own.

`program` is the entry point. `parsing` has what the parsers of all commands share. `shell` gives a command its client
and its output. `text` and `table` format values. Each module of `commands` is one command. No extra is needed; if rich
is installed, it draws the tables on a terminal.
"""

from __future__ import annotations

from shardq.cli.program import main

__all__ = ["main"]
