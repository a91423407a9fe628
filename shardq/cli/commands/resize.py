"""`shardq resize`: change the number of streams."""

from __future__ import annotations

from shardq.cli.parsing import Args, add_queue, add_yes, argument, command, number, takes
from shardq.cli.shell import Shell

ABOUT = """Workers and writers may go on meanwhile, no message is lost, and most tenants keep their streams. If the
number shrinks, the streams above it get no new messages, but are read until they are empty."""


@command(ABOUT, "  shardq resize jobs 128 --yes")
@takes(add_queue)
@argument("streams", metavar="N", type=number(1), help="the new number of streams")
@takes(add_yes)
def run(args: Args, shell: Shell) -> None:
    """Ask for confirmation, then resize."""
    queue, now = shell.existing(args.queue)
    question = f"Change queue {args.queue!r} from {now.wanted} to {args.streams} streams?"
    shell.confirm(question, yes=args.yes)
    read, written = queue.resize(args.streams)
    text = f"{written} streams" + (
        "" if read == written else f"; {read} are read until the higher-numbered ones are empty"
    )
    shell.show(text, {"queue": args.queue, "streams_read": read, "streams_written": written})
