"""`shardq resize`: spread a queue over more partitions, or fewer."""

from __future__ import annotations

from shardq.cli.flags import add_sure
from shardq.cli.output import remark
from shardq.cli.parsing import Args, add_queue, argument, command, takes
from shardq.cli.shell import Shell
from shardq.cli.values import number
from shardq.model.wording import plural

ABOUT = """A partition is a part of a queue in a slot of its own, and so on a node of its own of a cluster. Have as many
as the cluster has masters. Workers and writers may continue, and no message is lost; it takes 6 seconds, until all of
them know. Partitions above the new number get no new messages, are read until they are empty, and are removed an hour
after the last write. If it ends by an error, give the command again: it continues.

The number of streams is a setting: shardq configure QUEUE streams=N."""

EXAMPLES = """  shardq resize jobs --partitions 6
  shardq resize jobs --partitions 1 --yes"""


@command(ABOUT, EXAMPLES)
@takes(add_queue, add_sure)
@argument("--partitions", type=number(1), metavar="N", required=True, help="write to N partitions")
def run(args: Args, shell: Shell) -> None:
    """Ask for confirmation, then resize."""
    queue = shell.queue(args.queue)
    before = int(queue.settings().partitions)
    change = f"Write to {plural(args.partitions, 'partition')} of queue {args.queue!r} instead of {before}"
    if not shell.goes_on(args, change, {"queue": args.queue, "partitions": args.partitions, "before": before}):
        return
    read, written = queue.resize(partitions=args.partitions)
    if read != written:
        remark(f"{plural(read, 'partition')} are read until those above {written} are empty")
    shell.show(
        f"queue {args.queue!r} has {plural(written, 'partition')}: shardq partitions {args.queue}",
        {"queue": args.queue, "partitions": written, "read": read},
    )
