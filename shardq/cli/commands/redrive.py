"""`shardq redrive`: move dead letters back into their queue."""

from __future__ import annotations

from shardq.cli.acting import ActionWords, act
from shardq.cli.filters import where_of
from shardq.cli.flags import add_change, add_filter
from shardq.cli.parsing import Args, add_queue, command, flag, takes
from shardq.cli.shell import Shell

ABOUT = """Moves dead letters back into the queue, oldest first. They keep their ids and headers, and can be delivered
max_deliveries more times. Only messages that were dead when the command began are moved, so a message that fails again
meanwhile is not moved twice. It ends when the queue has no room for more (max_len), and says how many it has moved.
Others see it by `shardq actions`, and can stop it or take it over; so does Ctrl-C."""

EXAMPLES = """  shardq redrive jobs --dry-run
  shardq redrive jobs -n 10 --yes  # a few first: do they succeed now?
  shardq redrive mails --error SMTPRecipientsRefused --rate 50
  shardq redrive jobs -t tenant-42 --older-than 2h"""

ACTION_WORDS = ActionWords("redrive", "Redrive", "moved", "dead letter")


@command(ABOUT, EXAMPLES)
@takes(add_queue, add_filter)
@flag("limit", " (all)")
@flag("rate", " (as fast as it can)")
@takes(add_change)
def run(args: Args, shell: Shell) -> int:
    """Count the dead letters, ask for confirmation, move them."""
    return act(shell, args, ACTION_WORDS, where_of(args, "dead"), shell.queue(args.queue).redrive)
