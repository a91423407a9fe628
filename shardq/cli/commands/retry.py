"""`shardq retry`: deliver now what waits for its next try."""

from __future__ import annotations

from shardq.cli.acting import ActionWords, act
from shardq.cli.filters import where_of
from shardq.cli.flags import add_change, add_filter
from shardq.cli.parsing import Args, add_queue, command, flag, takes
from shardq.cli.shell import Shell

ABOUT = """A message whose try failed waits for its backoff. This makes those that the filter names due at once."""

EXAMPLES = """  shardq retry mails --dry-run
  shardq retry mails --error TimeoutError --rate 50"""

ACTION_WORDS = ActionWords("retry_now", "Retry", "retried")


@command(ABOUT, EXAMPLES)
@takes(add_queue, add_filter)
@flag("limit", " (all)")
@flag("rate", " (as fast as it can)")
@takes(add_change)
def run(args: Args, shell: Shell) -> int:
    """Count what waits, ask for confirmation, retry it."""
    return act(shell, args, ACTION_WORDS, where_of(args, "retrying"), shell.queue(args.queue).retry_now)
