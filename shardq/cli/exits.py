"""How the command ends: exit codes, and the two endings that are not errors of shardq."""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 2
NOTHING = 3
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
CLOSED_PIPE = 141  # 128 + SIGPIPE
TERMINATED = 143  # 128 + SIGTERM

MEANING = """exit codes:
  0  done
  1  it failed, or you declined; one line on stderr says why
  2  the command line is wrong
  3  there was nothing: an empty queue, no such queue, no such message
  130, 143: ended by Ctrl-C or SIGTERM; 141: whoever read the output went away"""


class UsageError(Exception):
    """The command line is wrong in a way that the parser cannot see."""


class Nothing(Exception):
    """What was asked for is not there."""
