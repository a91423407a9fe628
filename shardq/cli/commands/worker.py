"""`shardq worker`: read a queue and call a handler for each message, in one process or in several."""

from __future__ import annotations

import argparse

from shardq.cli.parsing import Args, argument, command, flag
from shardq.cli.shell import Shell
from shardq.cli.values import number, time

ABOUT = """HANDLER is module:name of a function or of a Tasks; the module is imported from the current directory or from
Python's path. A Tasks runs its tasks, and knows its queue. A function is called with each delivery. An async def
function runs as a task of one event loop, a plain function in a thread, or with --run-in processes in a child process,
which may crash without harm to the worker. If it returns, the message is acked. If it raises shardq.Nack(delay), the
message is delivered again after the delay; shardq.Reject(reason) sends it to the dead letters; after any other
exception it is delivered again after a backoff.

Several Tasks make a worker of several queues, which share its --concurrency by their weights: app.tasks:tasks=3 has
three times as many slots as one without a weight. The others use the slots that one queue does not need.

On SIGTERM, SIGHUP or Ctrl-C the worker stops reading, gives running handlers --grace seconds to finish, gives the other
messages back and exits with 0. A second SIGTERM or Ctrl-C ends it at once. With --processes a parent process forwards
signals, and replaces a worker process that died, with a remark on stderr."""

EXAMPLES = """  shardq worker app.tasks:tasks
  shardq worker app.tasks:tasks --until empty
  shardq worker app.reports:tasks=3 app.mails:tasks
  shardq worker tasks:handle --queue predictions
  shardq worker tasks:handle --queue predictions --concurrency 16 --processes 4
  shardq worker tasks:handle -q predictions --alive-file /tmp/alive --grace 60"""


@command(ABOUT, EXAMPLES)
@argument(
    "handlers",
    nargs="+",
    metavar="HANDLER",
    help="a function or a Tasks, as module:name; several Tasks for several queues, with weights as module:name=3 (1)",
)
@flag("queue", " (that of the tasks); -q is not --quiet")
@argument(
    "-c",
    "--concurrency",
    type=number(1),
    default=64,
    metavar="N",
    help="handlers that run at once in each process (64)",
)
@argument("-p", "--processes", type=number(1), default=1, metavar="N", help="number of worker processes (1)")
@argument("--run-in", choices=("threads", "processes"), default="threads", help="where plain functions run (threads)")
@argument("--read-ahead", type=number(0), default=0, metavar="N", help="messages that may wait for a free handler (0)")
@argument("--time-limit", type=time, metavar="TIME", help="after which a handler has failed (no limit)")
@flag("grace")
@argument(
    "--alive-file",
    metavar="PATH",
    help="a file to touch about each second while the worker does not hang, whether or not Redis answers and the "
    "queue exists; with several processes PATH.1, PATH.2, ...",
)
@argument(
    "--until", choices=("empty",), help="end when nothing can be delivered, is in flight or waits for its next try"
)
@argument("--metrics", metavar="HOST:PORT", help="serve its numbers there for Prometheus, as :9464 on all addresses")
@argument("--reload", action="store_true", help="restart when a Python file below the current directory changes")
@argument("--log-format", choices=("text", "json"), default="text", help="how lines on stderr look (text)")
@argument("-v", "--verbose", action="store_true", help="a line for each message, too")
@argument("--quiet", action="store_true", help="only lines about what goes wrong (without a short form: -q is --queue)")
@argument("--supervised", action="store_true", help=argparse.SUPPRESS)
@argument("--metrics-pipe", type=int, help=argparse.SUPPRESS)
def run(args: Args, shell: Shell) -> int:
    """Work until a signal comes."""
    from shardq.cli.working import work  # it imports workers and drivers, which a help does not need

    return work(args, shell)
