"""`shardq cancel`: remove one message."""

from __future__ import annotations

from shardq.cli.parsing import Args, add_queue, argument, command, takes
from shardq.cli.shell import Shell

ABOUT = """A waiting or delayed message is removed for good. A message in flight is only marked: the worker that has it
learns of that at its next extend or ack, and the message is not delivered again. Exit code 3 when no message with this
id is waiting, delayed or in flight."""


MEANING = {
    "removed": "removed",
    "in flight": "in flight: its worker learns of it at its next extend or ack",
    "dead": "it is a dead letter: nothing was changed; `shardq delete-dead --id` deletes it",
}


@command(ABOUT, "  shardq cancel jobs 1732150000000-42-7")
@takes(add_queue)
@argument("message_id", metavar="ID", help="the id that `shardq write` printed")
def run(args: Args, shell: Shell) -> None:
    """Cancel the message."""
    queue, _ = shell.existing(args.queue)
    was = queue.cancel(args.message_id)
    text = MEANING[was]
    shell.show(text, {"message_id": args.message_id, "was": str(was)})
