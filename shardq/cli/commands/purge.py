"""`shardq purge`: remove what is undelivered or delayed."""

from __future__ import annotations

from shardq.cli.parsing import Args, add_queue, add_yes, command, takes
from shardq.cli.shell import Shell
from shardq.cli.text import plural

ABOUT = "Removes all messages that are undelivered or delayed, for good. Messages in flight and dead letters stay."


@command(ABOUT, "  shardq purge jobs --yes")
@takes(add_queue, add_yes)
def run(args: Args, shell: Shell) -> None:
    """Ask for confirmation, then remove."""
    queue, now = shell.existing(args.queue)
    what = f"{now.backlog:,} undelivered and {now.delayed:,} delayed messages"
    shell.confirm(f"Remove {what} of queue {args.queue!r} for good?", yes=args.yes)
    removed = queue.purge()
    shell.show(f"{plural(removed, 'message')} removed", {"queue": args.queue, "purged": removed})
