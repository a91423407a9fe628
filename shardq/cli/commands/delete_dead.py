"""`shardq delete-dead`: delete dead letters for good."""

from __future__ import annotations

import os

from shardq.cli.exits import Nothing, UsageError
from shardq.cli.parsing import Args, add_queue, add_yes, argument, command, number, takes, time
from shardq.cli.shell import Shell
from shardq.cli.text import plural
from shardq.client import Queue
from shardq.ops.operate.dead_letters import Filter
from shardq.protocol.bodies import text_or_bytes

ABOUT = """Deletes the dead letters with these message ids, or those for which all that is said holds, the oldest first.
They cannot be redriven any more. The settings dead_ttl and drop_dead let a queue do so by itself."""

EXAMPLES = """  shardq delete-dead jobs --older-than 604800 --dry-run
  shardq delete-dead jobs --shard-key tenant-42 --error Timeout --yes
  shardq delete-dead jobs --id 1795453000000-17-3 --yes"""
PAGE = 500


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("--id", dest="ids", metavar="ID", action="append", help="the one with this id (repeatable)")
@argument("-k", "--shard-key", metavar="K", help="only those of this shard key")
@argument("--reason", metavar="TEXT", help="only those with this text in their reason")
@argument("--error", metavar="TEXT", help="only those with this text in their last error")
@argument("--older-than", type=time, metavar="S", help="only those dead for S seconds; 0 for all")
@argument("-c", "--count", type=number(1), metavar="N", help="delete at most N (all)")
@argument("-n", "--dry-run", action="store_true", help="only print how many would be deleted")
@takes(add_yes)
def run(args: Args, shell: Shell) -> None:
    """Count the dead letters, ask for confirmation, delete them."""
    queue, numbers = shell.existing(args.queue)
    key = None if args.shard_key is None else text_or_bytes(os.fsencode(args.shard_key))
    chosen = Filter(key, args.reason, args.error, args.older_than)
    if bool(args.ids) == (chosen != Filter()):
        raise UsageError("say which: --id, or some of --shard-key, --reason, --error and --older-than (0 for all)")
    found = len(args.ids) if args.ids else _count(queue, chosen, numbers.time, args.count)
    if not found:
        raise Nothing(f"queue {args.queue!r} has no such dead letters")
    if args.dry_run:
        text = f"{plural(found, 'dead letter')} would be deleted"
        shell.show(text, {"queue": args.queue, "would_delete": found})
        return
    shell.confirm(f"Delete {plural(found, 'dead letter')} of queue {args.queue!r} for good?", yes=args.yes)
    if args.ids:
        deleted = queue.delete_dead(ids=args.ids)
    else:
        deleted = queue.delete_dead(
            shard_key=key, reason=args.reason, error=args.error, older_than=args.older_than, limit=args.count
        )
    shell.show(f"{plural(deleted, 'dead letter')} deleted", {"queue": args.queue, "deleted": deleted})


def _count(queue: Queue, chosen: Filter, now: float, most: int | None) -> int:
    found, after = 0, "-"
    while letters := queue.dead(PAGE, after=after):
        after = letters[-1].entry_id
        found += sum(each.died_at <= now and chosen.selects(each, now) for each in letters)
        if letters[-1].died_at > now or (most is not None and found >= most):
            break
    return found if most is None else min(found, most)
