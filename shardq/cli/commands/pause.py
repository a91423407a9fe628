"""`shardq pause`: stop the delivery of a shard key, or of a whole queue."""

from __future__ import annotations

from shardq.cli.parsing import Args, add_queue, add_yes, argument, command, takes, time
from shardq.cli.shell import Shell
from shardq.cli.text import bytes_fields, printable

ABOUT = """Nothing of the shard key (of a parent: of any of its children) is delivered until `shardq resume`, or for so
many seconds. Without KEY it is the whole queue. Writes go on, and so does what is in flight. Workers pass over what is
paused and serve the others."""

EXAMPLES = """  shardq pause jobs acct-7 --yes
  shardq pause jobs --for 600 --yes        # the whole queue, for ten minutes"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("shard_key", metavar="KEY", nargs="?", help="a shard key or parent (the whole queue)")
@argument("--for", dest="seconds", type=time, metavar="S", help="end it after S seconds")
@takes(add_yes)
def run(args: Args, shell: Shell) -> None:
    """Pause it."""
    queue, _ = shell.existing(args.queue)
    what = f"{printable(args.shard_key)} in queue {args.queue!r}" if args.shard_key else f"queue {args.queue!r}"
    lasting = f"for {args.seconds:g} s" if args.seconds else "until it is resumed"
    shell.confirm(f"Pause {what} {lasting}?", yes=args.yes)
    queue.pause(args.shard_key, seconds=args.seconds)
    named = bytes_fields("shard_key", args.shard_key) if args.shard_key else {}
    shell.show(f"{what} is paused {lasting}", {"queue": args.queue, **named, "paused": True, "seconds": args.seconds})
