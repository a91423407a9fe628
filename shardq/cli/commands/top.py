"""`shardq top`: who has most in a queue, again and again."""

from __future__ import annotations

import shutil
import sys
import threading

from shardq.cli.commands.tenants import add_order, show
from shardq.cli.output import clear, say
from shardq.cli.parsing import Args, add_queue, argument, command, number, period, takes
from shardq.cli.shell import Shell
from shardq.cli.text import duration, printable
from shardq.model import QueueStats

ABOUT = """The queue's numbers and the table of `shardq tenants`, every few seconds until Ctrl-C. On a terminal it shows
as many tenants as fit."""

EXAMPLES = """  shardq top jobs
  shardq top jobs --order oldest --every 10"""


@command(ABOUT, EXAMPLES)
@takes(add_queue, add_order)
@argument("--every", type=period, default=2.0, metavar="S", help="look every S seconds (2)")
@argument("--times", type=number(1), metavar="N", help="end after N looks (never)")
def run(args: Args, shell: Shell) -> None:
    """Print them, and do it again."""
    queue, now = shell.existing(args.queue)
    pause, looks = threading.Event(), 0
    while True:
        found = queue.tenants(args.order, limit=_fitting(args.limit))
        if not shell.json:
            clear()
            say(f"{_head(now)}\n")
        show(shell, args.queue, found)
        sys.stdout.flush()
        looks += 1
        if looks == args.times:
            return
        pause.wait(args.every)
        now = queue.stats()


ABOVE = 5
"""Lines of a terminal that are not of tenants: three above the table, its header, and the cursor's."""


def _fitting(limit: int) -> int:
    """Return how many tenants to show: on a terminal as many as it has lines for, so that the first stay in sight."""
    return min(limit, max(1, shutil.get_terminal_size().lines - ABOVE)) if sys.stdout.isatty() else limit


def _head(now: QueueStats) -> str:
    return (
        f"{printable(now.queue)}: backlog {now.backlog:,}, runnable {now.runnable:,}, in flight {now.in_flight:,}, "
        f"delayed {now.delayed:,},\ndead {now.dead:,}, oldest {duration(now.oldest_age)}"
    )
