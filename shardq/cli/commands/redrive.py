"""`shardq redrive`: move dead letters back into their queue."""

from __future__ import annotations

import os
from collections.abc import Iterator

from shardq.cli.exits import Nothing
from shardq.cli.parsing import Args, add_queue, add_yes, argument, command, number, takes
from shardq.cli.shell import Shell
from shardq.cli.text import plural
from shardq.client import Queue
from shardq.errors import PartlyDone
from shardq.model import DeadLetter, QueueStats
from shardq.protocol.bodies import text_or_bytes

ABOUT = """Moves dead letters back into the queue, oldest first. They keep their ids and headers, and can be delivered
max_deliveries more times. Only messages that were dead when the command began are moved, so a message that fails again
meanwhile is not moved twice. It ends when the queue has no room for more (max_len), and says how many it has moved."""

EXAMPLES = """  shardq redrive jobs --dry-run
  shardq redrive jobs --count 10 --yes  # a few first: do they succeed now?
  shardq redrive jobs --shard-key tenant-42"""
PAGE = 500


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("-c", "--count", type=number(1), metavar="N", help="move at most N (all)")
@argument("-k", "--shard-key", metavar="K", help="only dead letters of this shard key")
@argument("-n", "--dry-run", action="store_true", help="only print how many would be moved")
@takes(add_yes)
def run(args: Args, shell: Shell) -> None:
    """Count the dead letters, ask for confirmation, move them."""
    queue, numbers = shell.existing(args.queue)
    found = sum(len(page) for page in _pages(queue, numbers, args))
    if not found:
        of = "" if args.shard_key is None else f" of shard key {args.shard_key!r}"
        raise Nothing(f"queue {args.queue!r} has no dead letters{of}")
    if args.dry_run:
        text = f"{plural(found, 'dead letter')} would be moved"
        shell.show(text, {"queue": args.queue, "would_redrive": found})
        return
    shell.confirm(f"Move {plural(found, 'dead letter')} back into queue {args.queue!r}?", yes=args.yes)
    moved = 0
    try:
        for page in _pages(queue, numbers, args):
            moved += queue.redrive(page)
    except PartlyDone as partly:
        moved += partly.done
        raise
    finally:
        shell.show(f"{plural(moved, 'dead letter')} moved", {"queue": args.queue, "redriven": moved})


def _pages(queue: Queue, numbers: QueueStats, args: Args) -> Iterator[list[DeadLetter]]:
    """The dead letters that the options select, a page at a time."""
    key = None if args.shard_key is None else text_or_bytes(os.fsencode(args.shard_key))
    after, left = "-", args.count
    while letters := queue.dead(PAGE, after=after):
        after = letters[-1].entry_id
        page = [each for each in letters if each.died_at <= numbers.time and key in (None, each.shard_key)][:left]
        if page:
            yield page
        left = None if left is None else left - len(page)
        if left == 0 or letters[-1].died_at > numbers.time:
            return
