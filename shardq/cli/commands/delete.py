"""`shardq delete`: delete a queue."""

from __future__ import annotations

from shardq.cli.parsing import Args, Parser, add_queue, add_yes, command, number, takes
from shardq.cli.shell import Shell
from shardq.cli.text import plural

ABOUT = """Deletes the queue, its settings, weights and assignment, and what it holds. A queue that holds messages
(waiting, delayed, in flight, or dead letters) is only deleted with --any, or with --expected and their number. Stop
its writers first: a client that has settings for the queue creates it again. Bindings to the queue stay, until shardq
unbind --gone removes them."""

EXAMPLES = """  shardq delete jobs
  shardq delete jobs --expected 12 --yes"""


def _add_which(parser: Parser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--expected", type=number(0), default=0, metavar="N", help="delete it if it holds N messages (0)"
    )
    which.add_argument("--any", action="store_true", help="delete it whatever it holds")


@command(ABOUT, EXAMPLES)
@takes(add_queue, _add_which, add_yes)
def run(args: Args, shell: Shell) -> None:
    """Ask for confirmation, then delete."""
    queue, now = shell.existing(args.queue)
    held = now.backlog + now.in_flight + now.delayed + now.dead
    shell.confirm(f"Delete queue {args.queue!r} with {plural(held, 'message')} for good?", yes=args.yes)
    lost = queue.delete(expected=None if args.any else args.expected)
    shell.show(
        f"queue {args.queue!r} is deleted, with {plural(lost, 'message')}", {"queue": args.queue, "deleted": lost}
    )
