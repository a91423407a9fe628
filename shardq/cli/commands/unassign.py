"""`shardq unassign`: remove assignments, so that shard keys are dealt by hashing again."""

from __future__ import annotations

from shardq.cli.exits import UsageError
from shardq.cli.names import add_names, names_of
from shardq.cli.parsing import Args, add_queue, add_yes, argument, command, takes
from shardq.cli.shell import Shell
from shardq.cli.text import plural

ABOUT = """New messages of these shard keys go to the streams that hashing deals them. Messages that wait stay in their
streams and are read there. Afterwards the queue can be resized to fewer streams than the assignments named."""

EXAMPLES = """  shardq unassign jobs acct-1 --yes
  shardq unassign jobs --all --yes"""


@command(ABOUT, EXAMPLES)
@takes(add_queue, add_names)
@argument("--all", action="store_true", help="all assigned shard keys")
@takes(add_yes)
def run(args: Args, shell: Shell) -> None:
    """Ask for confirmation, then remove the assignments."""
    names = names_of(args)
    if bool(names) == args.all:
        raise UsageError("give either shard keys or --all")
    queue, _ = shell.existing(args.queue)
    whose = "all assigned shard keys" if args.all else plural(len(names), "shard key")
    shell.confirm(f"Deal {whose} of queue {args.queue!r} by hashing again?", yes=args.yes)
    left = queue.unassign(None if args.all else names)
    shell.show(f"{plural(len(left), 'shard key')} still assigned", {"queue": args.queue, "assigned": len(left)})
