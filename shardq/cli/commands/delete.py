"""`shardq delete`: delete a queue."""

from __future__ import annotations

from shardq.cli.flags import add_sure
from shardq.cli.parsing import Args, Parser, add_queue, command, takes
from shardq.cli.shell import Shell
from shardq.cli.text import plural
from shardq.cli.values import number
from shardq.errors import QueueNotEmpty

ABOUT = """Deletes the queue, its settings, weights and assignment, and what it holds. A queue that holds messages
(waiting, delayed, in flight, or dead letters) is only deleted with --any, or with --expected and their number. Stop its
writers first: a client that has settings for the queue creates it again. Bindings to the queue stay, until
`shardq topics unbind --gone` removes them."""

EXAMPLES = """  shardq delete jobs
  shardq delete jobs --expected 12 --yes"""


def _add_which(parser: Parser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--expected", type=number(0), default=0, metavar="N", help="delete it if it holds N messages (0)"
    )
    which.add_argument("--any", action="store_true", help="delete it whatever it holds")


@command(ABOUT, EXAMPLES)
@takes(add_queue, _add_which, add_sure)
def run(args: Args, shell: Shell) -> None:
    """Ask for confirmation, then delete."""
    queue, now = shell.existing(args.queue)
    held = now.backlog + now.in_flight + now.delayed + now.dead
    if held and not args.any and not args.expected:  # before it asks, or says what it would do
        raise QueueNotEmpty(
            f"queue {args.queue!r} holds {plural(held, 'message')}, dead letters included, and not 0: nothing was "
            "deleted; --any deletes it anyway"
        )
    change = f"Delete queue {args.queue!r} with {plural(held, 'message')} for good"
    if not shell.goes_on(args, change, {"queue": args.queue, "held": held}):
        return
    lost = queue.delete(expected=None if args.any else args.expected)
    shell.show(
        f"queue {args.queue!r} is deleted, with {plural(lost, 'message')}", {"queue": args.queue, "deleted": lost}
    )
