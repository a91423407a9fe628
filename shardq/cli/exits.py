"""How the command ends: its exit codes, and three exceptions that are not errors of the library."""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 2
EXIT_NOTHING = 3
EXIT_DIFFERENT = 4
EXIT_PARTLY = 5
INTERRUPTED = 130  # 128 + SIGINT, the convention of shells
CLOSED_PIPE = 141  # 128 + SIGPIPE
TERMINATED = 143  # 128 + SIGTERM

MEANING = """exit codes:
  0  done
  1  it failed, or you answered no; one line on stderr says why
  2  the command line is wrong
  3  nothing there: no such queue, message or tenant, or none in the list
  4  apply --dry-run: something would change
  5  jobs, pipeline jobs, pipeline archive: some queues are not there; others
     are done
     edge send: some messages were refused
  130, 143: ended by Ctrl-C or SIGTERM; 141: the reader of the output ended

A TIME is a number of seconds, or one with a unit, as 90s, 15m, 2h or 7d."""


class UsageError(Exception):
    """The command line is wrong in a way that the parser cannot see."""


class Declined(Exception):
    """The user answered no; the exit code is `FAILED`."""


class NothingThere(Exception):
    """There is no such queue, message or other thing; the exit code is `EXIT_NOTHING`."""
