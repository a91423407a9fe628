"""`shardq len`: print how many messages are undelivered or in flight."""

from __future__ import annotations

from shardq.cli.parsing import Args, add_queue, command, takes
from shardq.cli.shell import Shell

ABOUT = "Counts the messages that are undelivered or in flight. Exit code 3 if there is no such queue."


@command(ABOUT, "  shardq len jobs\n  shardq len jobs --json | jq .len")
@takes(add_queue)
def run(args: Args, shell: Shell) -> None:
    """Print the length."""
    length = shell.queue(args.queue).len()
    shell.show(str(length), {"queue": args.queue, "len": length})
