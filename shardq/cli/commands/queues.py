"""`shardq queues`: list the queues."""

from __future__ import annotations

from shardq.cli.exits import FAILED, OK
from shardq.cli.output import remark
from shardq.cli.parsing import Args, command
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.cli.text import duration
from shardq.errors import BackendError, BackendTimeout
from shardq.model import QueueStats
from shardq.ops.inspect.stats import numbers

ABOUT = """Lists the queues that clients with settings have declared, in the order of their names. A queue whose keys
are gone, since Redis lost them, is shown as missing; one that this user may not read, as unreadable, and the exit code
is 1 then."""
COLUMNS = ("queue", "backlog", "in flight", "delayed", "dead", "oldest", "streams")


@command(ABOUT, "  shardq queues\n  shardq queues --json")
def run(args: Args, shell: Shell) -> int:
    """Show each queue with its numbers. One that cannot be read does not hide the others."""
    rows: list[tuple[str, ...]] = []
    code = OK
    for name in shell.client.queues():
        try:
            now = shell.client.run(numbers(shell.queue(name).state))
        except BackendTimeout:
            raise
        except BackendError as error:
            remark(f"queue {name!r}: {error}")
            rows.append((name, "unreadable", *[""] * 5))
            code = FAILED
            continue
        rows.append((name, *_shown(now)))
        if shell.json:
            shell.show("", {
                "queue": name, "exists": bool(now.streams), "backlog": now.backlog, "in_flight": now.in_flight,
                "delayed": now.delayed, "dead": now.dead, "oldest_age": now.oldest_age, "streams": now.wanted,
            })  # fmt: skip
    if not shell.json:
        draw(COLUMNS, rows, right=frozenset(COLUMNS[1:]))
    return code


def _shown(now: QueueStats) -> tuple[str, ...]:
    if not now.streams:
        return ("missing", *[""] * 5)
    counts = (now.backlog, now.in_flight, now.delayed, now.dead)
    return (*(f"{each:,}" for each in counts), duration(now.oldest_age), str(now.wanted))
