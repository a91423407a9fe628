"""`shardq queues`: list the queues."""

from __future__ import annotations

import argparse

from shardq.cli.exits import OK
from shardq.cli.parsing import Commands, command
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.cli.text import duration, printable

ABOUT = """Lists the queues that clients with settings have declared, in the order of their names. A queue whose keys
are gone, since Redis lost them, is shown as missing."""
COLUMNS = ("queue", "backlog", "in flight", "delayed", "dead", "oldest", "streams")


def register(commands: Commands) -> None:
    """Add the parser."""
    command(commands, "queues", run, "list the queues", about=ABOUT, examples="  shardq queues\n  shardq queues --json")


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Show each queue with its numbers."""
    rows: list[tuple[str, ...]] = []
    for name in shell.client.queues():
        now = shell.queue(name).stats()
        age = duration(now.oldest_age)
        numbers = (now.backlog, now.in_flight, now.delayed, now.dead)
        shown = (*(f"{each:,}" for each in numbers), age, str(now.wanted)) if now.streams else ("missing", *[""] * 5)
        rows.append((printable(name), *shown))
        if shell.json:
            shell.show("", {
                "queue": name, "exists": bool(now.streams), "backlog": now.backlog, "in_flight": now.in_flight,
                "delayed": now.delayed, "dead": now.dead, "oldest_age": now.oldest_age, "streams": now.wanted,
            })  # fmt: skip
    if not shell.json:
        draw(COLUMNS, rows, right=frozenset(COLUMNS[1:]))
    return OK
