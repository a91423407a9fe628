"""`shardq pause`: stop the delivery of a tenant, or of a whole queue."""

from __future__ import annotations

from shardq.cli.filters import tenant_of
from shardq.cli.flags import add_change
from shardq.cli.parsing import Args, add_queue, command, flag, takes
from shardq.cli.shell import Shell, asked_by
from shardq.cli.text import bytes_fields, duration, shown_key

ABOUT = """Nothing of the tenant (of a parent: of any of its children) is delivered until `shardq resume`, or until the
time of --for is over. Without --tenant it is the whole queue. Writes continue, and so do messages in flight. Workers
pass over the paused messages and serve the others. Its author and its note are kept with the pause, and in the
journal."""

EXAMPLES = """  shardq pause jobs -t acct-7 --for 2h --note 'ticket 812' --yes
  shardq pause jobs --for 10m --yes        # the whole queue"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@flag("tenant", " (the whole queue)")
@flag("for", " (until it is resumed)")
@takes(add_change)
def run(args: Args, shell: Shell) -> None:
    """Pause it."""
    queue, _ = shell.existing(args.queue)
    key = tenant_of(args)
    what, named = paused_thing(args.queue, key)
    lasting = f"for {duration(args.seconds)}" if args.seconds else "until it is resumed"
    fields = {"queue": args.queue, **named, "paused": True, "seconds": args.seconds}
    if shell.goes_on(args, f"Pause {what} {lasting}", fields):
        queue.pause(key, seconds=args.seconds, **asked_by(args))
        shell.show(f"{what} is paused {lasting}", fields)


def paused_thing(name: str, key: str | bytes | None) -> tuple[str, dict[str, str]]:
    """The paused thing, in words and as JSON: the tenant with this shard key, or the queue called *name* if None."""
    if key is None:
        return f"queue {name!r}", {}
    return f"{shown_key(key)} in queue {name!r}", bytes_fields("shard_key", key)
