"""`shardq edge tail`: follow what is put into the spool and what is acked."""

from __future__ import annotations

import sys
import threading

from shardq.cli.edge.options import add_spool
from shardq.cli.edge.status import looked
from shardq.cli.parsing import Args, command, flag, takes
from shardq.cli.shell import Shell

COUNTED = ("accepted", "acked", "refused", "dropped")


@command(extra="edge")
@takes(add_spool)
@flag("watch", default=2.0)
@flag("times")
def run(args: Args, shell: Shell) -> None:
    """Print a line for each look: the changes since the one before, and the waiting messages."""
    before, never, looks = looked(args), threading.Event(), 0
    while args.times is None or looks < args.times:
        never.wait(args.watch)
        looks, found = looks + 1, looked(args)
        changes = {name: found[name] - before[name] for name in COUNTED}
        told = ", ".join(f"{count:,} {name}" for name, count in changes.items() if count) or "nothing new"
        shell.show(f"{told}; {found['waiting']:,} wait, the oldest for {found['oldest_age']:,.0f} s", found)
        sys.stdout.flush()
        before = found
