"""`shardq resume`: deliver a shard key or a queue again that was paused."""

from __future__ import annotations

from shardq.cli.parsing import Args, add_queue, argument, command, takes
from shardq.cli.shell import Shell
from shardq.cli.text import bytes_fields, printable

ABOUT = """Workers that wait are woken. A shard key that was paused by itself stays so when the whole queue goes on.
Resuming what is not paused changes nothing."""

EXAMPLES = """  shardq resume jobs acct-7
  shardq resume jobs"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("shard_key", metavar="KEY", nargs="?", help="a shard key or parent (the whole queue)")
def run(args: Args, shell: Shell) -> None:
    """End the pause."""
    queue, _ = shell.existing(args.queue)
    queue.resume(args.shard_key)
    what = f"{printable(args.shard_key)} in queue {args.queue!r}" if args.shard_key else f"queue {args.queue!r}"
    named = bytes_fields("shard_key", args.shard_key) if args.shard_key else {}
    shell.show(f"{what} goes on", {"queue": args.queue, **named, "paused": False})
