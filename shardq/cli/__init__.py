"""The command `shardq`: parse, call the client, print. No logic of its own.

`program` is the entry, `parsing` what the parsers of all commands share, `shell` what a command works with, `text` and
`table` how things look; each module of `commands` is one command. Nothing beyond the core is needed; rich, if it is
installed, draws tables on a terminal.
"""

from __future__ import annotations

from shardq.cli.program import main

__all__ = ["main"]
