"""`shardq cancel`: remove messages that are not done yet."""

from __future__ import annotations

from shardq.cli.acting import ActionWords, act
from shardq.cli.exits import UsageError
from shardq.cli.filters import where_of
from shardq.cli.flags import add_change, add_filter
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.shell import Shell, asked_by

ABOUT = """Removes one message by its ID, without asking, or those that the filter names. A waiting or delayed message
is removed for good. A message in flight is only marked: the worker that has it learns of that at its next extend or
ack, and the message is not delivered again. Exit code 3 when no such message is waiting, delayed or in flight."""

EXAMPLES = """  shardq cancel jobs 1732150000000-42-7
  shardq cancel jobs --task mail.send_digest --state delayed --dry-run"""

STATES = ("waiting", "delayed", "retrying", "in_flight")
MEANING = {
    "removed": "removed",
    "in flight": "in flight: its worker learns of it at its next extend or ack",
    "dead": "it is a dead letter: nothing was changed; `shardq purge --dead --id` deletes it",
}
ACTION_WORDS = ActionWords("cancel", "Cancel", "cancelled")


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("message_id", metavar="ID", nargs="?", help="the id that `shardq write` printed")
@takes(add_filter)
@flag("state", f": {', '.join(STATES)} (all)", choices=STATES)
@flag("limit", " (all)")
@flag("rate", " (as fast as it can)")
@takes(add_change)
def run(args: Args, shell: Shell) -> int | None:
    """Cancel the message, or those that were named."""
    where = where_of(args)
    if (args.message_id is None) == where.is_empty:
        raise UsageError("say which: the ID of one, or a filter such as --tenant, --task or --error")
    queue, _ = shell.existing(args.queue)
    if args.message_id is None:
        return act(shell, args, ACTION_WORDS, where, queue.cancel)
    args.yes = True
    if shell.goes_on(args, f"Cancel message {args.message_id}", {"message_id": args.message_id}):
        was = queue.cancel(args.message_id, **asked_by(args))
        shell.show(MEANING[was], {"message_id": args.message_id, "was": str(was)})
    return None
