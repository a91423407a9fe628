"""The command `shardq`: it parses the arguments, calls the client and prints. It has no logic of its own.

`program` is the entry point, `running` runs a command. `parsing` has what the parsers of all commands share. `shell`
gives a command its client and its output. `text` and `table` format values. Each module of `commands` is one command,
which is imported when it is chosen: a `menu` has the names and summaries. No extra is needed, but for commands whose
help names one; if rich is installed, it draws the tables on a terminal.
"""

from __future__ import annotations

from shardq.cli.program import main

__all__ = ["main"]
