"""`shardq pause`: stop the delivery of a shard key, or of a whole queue."""

from __future__ import annotations

import argparse

from shardq.cli.exits import FAILED, OK
from shardq.cli.parsing import Commands, add_queue, add_yes, command, time
from shardq.cli.shell import Shell
from shardq.cli.text import bytes_fields, printable

ABOUT = """Nothing of the shard key (of a parent: of any of its children) is delivered until `shardq resume`, or for so
many seconds. Without KEY it is the whole queue. Writes go on, and so does what is in flight. Workers pass over what is
paused and serve the others."""

EXAMPLES = """  shardq pause jobs acct-7 --yes
  shardq pause jobs --for 600 --yes        # the whole queue, for ten minutes"""


def register(commands: Commands) -> None:
    """Add the parser."""
    parser = command(commands, "pause", run, "stop delivering a tenant, or a queue", about=ABOUT, examples=EXAMPLES)
    add_queue(parser)
    parser.add_argument("shard_key", metavar="KEY", nargs="?", help="a shard key or parent (the whole queue)")
    parser.add_argument("--for", dest="seconds", type=time, metavar="S", help="end it after S seconds")
    add_yes(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Pause it."""
    queue, _ = shell.existing(args.queue)
    what = f"{printable(args.shard_key)} in queue {args.queue!r}" if args.shard_key else f"queue {args.queue!r}"
    lasting = f"for {args.seconds:g} s" if args.seconds else "until it is resumed"
    if not shell.confirm(f"Pause {what} {lasting}?", yes=args.yes):
        return FAILED
    queue.pause(args.shard_key, seconds=args.seconds)
    named = bytes_fields("shard_key", args.shard_key) if args.shard_key else {}
    shell.show(f"{what} is paused {lasting}", {"queue": args.queue, **named, "paused": True, "seconds": args.seconds})
    return OK
