"""`shardq worker`: read a queue and call a handler for each message, in one process or in several."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal

from shardq.cli.exits import OK, UsageError
from shardq.cli.output import remark
from shardq.cli.parsing import Args, argument, command, number, time
from shardq.cli.shell import Shell
from shardq.cli.supervisor import Supervisor
from shardq.client import AsyncClient, Queue
from shardq.clock import SystemClock
from shardq.errors import BackendTimeout, OutcomeUnknown, QueueMissing
from shardq.worker import AsyncWorker, Worker
from shardq.worker.liveness import LivenessThread
from shardq.worker.plan import PlanSettings
from shardq.worker.signals import stop_signals

ABOUT = """HANDLER is module:function; the module is imported from the current directory or from Python's path. The
function is called with each delivery. An async def function runs as a task of one event loop, a plain function in a
thread, or with --run-in processes in a child process, which may crash without harm to the worker. If it returns, the
message is acked. If it raises shardq.Nack(delay), the message is delivered again after the delay; shardq.Reject(reason)
sends it to the dead letters; after any other exception it is delivered again after a backoff.

On SIGTERM or Ctrl-C the worker stops reading, gives running handlers --grace seconds to finish, gives the other
messages back and exits with 0. A second signal ends it at once. With --processes a parent process forwards signals, and
replaces a worker process that died, with a remark on stderr."""

EXAMPLES = """  shardq worker tasks:handle --queue predictions
  shardq worker tasks:handle --queue predictions --concurrency 16 --processes 4
  shardq worker tasks:handle -q predictions --alive-file /tmp/alive --grace 60"""

QUEUE_POLL = 0.5
"""Seconds between two checks whether the queue exists."""
SLACK = 10.0
"""Seconds that such a check may take beyond the timeouts of its calls before this process counts as hung."""


@command("worker", "call a handler for each message", ABOUT, EXAMPLES)
@argument("handler", metavar="HANDLER", help="the handler, as module:function")
@argument("-q", "--queue", required=True, metavar="QUEUE", help="the queue's name")
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
@argument("--time-limit", type=time, metavar="S", help="seconds after which a handler has failed (no limit)")
@argument("--grace", type=time, default=25.0, metavar="S", help="seconds for handlers to finish at the end (25)")
@argument(
    "--alive-file",
    metavar="PATH",
    help="a file to touch about each second while the worker does not hang, whether or not Redis answers and the "
    "queue exists; with several processes PATH.1, PATH.2, ...",
)
@argument("--supervised", action="store_true", help=argparse.SUPPRESS)
def run(args: Args, shell: Shell) -> int:
    """Work until a signal comes."""
    for each in stop_signals():
        signal.signal(each, _end)
    handle = imported(args.handler)
    if args.processes > 1:
        return Supervisor(shell.url, shell.timeout, lambda n: _arguments(args, n), args.processes).run()
    if args.supervised:
        _end_with_parent()
    queue = shell.queue(args.queue)
    with LivenessThread(args.alive_file, SLACK + 2 * shell.timeout, SystemClock()) as liveness:
        _wait_for_queue(queue, liveness)
    settings: PlanSettings = {
        "concurrency": args.concurrency,
        "read_ahead": args.read_ahead,
        "time_limit": args.time_limit,
        "grace": args.grace,
        "alive": args.alive_file,
        "signals": True,
    }
    if inspect.iscoroutinefunction(handle):
        asyncio.run(_run_async(shell, args.queue, handle, settings))
    else:
        run_in: Literal["threads", "processes"] = args.run_in
        Worker(queue, handle, run_in=run_in, **settings).run()
    return OK


def _end(number: int, _: FrameType | None) -> None:
    """End this process as it is: until the worker handles signals itself it has no messages.

    Then the worker's handler calls this one, which leaves the end to the worker. An exception could be lost: Python
    ignores those that leave destructors and callbacks of weak references.
    """
    if signal.getsignal(number) is _end:
        os._exit(OK)


def imported(name: str) -> Callable[[Any], Any]:
    """The handler called `module:function`; UsageError if there is none. Errors of its module are not caught."""
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise UsageError(f"the handler must be named as module:function, not {name!r}")
    if "" not in sys.path and os.getcwd() not in sys.path:  # noqa: PTH109 (sys.path holds strings)
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise UsageError(f"there is no module {module_name!r} here") from None
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise UsageError(f"module {module_name!r} has no function {path!r}")
    return found  # type: ignore[no-any-return]


async def _run_async(shell: Shell, name: str, handle: Callable[[Any], Any], settings: PlanSettings) -> None:
    async with AsyncClient.beside(shell.client) as client:
        await AsyncWorker(client.queue(name), handle, **settings).run()


def _wait_for_queue(queue: Queue, liveness: LivenessThread) -> None:
    """Wait until the queue exists. The worker does not create it: the first writer knows its settings."""
    pause, shown = threading.Event(), ""
    while problem := _missing(queue):
        if problem != shown:
            remark(problem)
            shown = problem
        pause.wait(QUEUE_POLL)
        liveness.still_going()


def _missing(queue: Queue) -> str:
    """Why the queue cannot be read yet; '' if it can."""
    try:
        queue.stats()
    except (BackendTimeout, OutcomeUnknown):
        return "Redis does not answer yet; waiting for it"
    except QueueMissing:
        return f"there is no queue {queue.name!r} yet; its first write creates it"
    return ""


def _end_with_parent() -> None:
    """Stop when the parent has ended: then stdin, a pipe from it, ends."""
    main = threading.main_thread()

    def watch() -> None:
        while os.read(0, 1):  # not sys.stdin, whose lock would be held when the interpreter ends
            pass
        signal.pthread_kill(main.ident or 0, signal.SIGTERM)  # to the main thread, which must wake for it

    threading.Thread(target=watch, name="shardq-parent-watch", daemon=True).start()


def _arguments(args: Args, number: int) -> list[str]:
    """The arguments of worker process *number*, from 1."""
    words = [args.handler, "--queue", args.queue, "--concurrency", str(args.concurrency), "--supervised"]
    words += ["--run-in", args.run_in, "--read-ahead", str(args.read_ahead), "--grace", str(args.grace)]
    if args.time_limit is not None:
        words += ["--time-limit", str(args.time_limit)]
    if args.alive_file is not None:
        words += ["--alive-file", f"{args.alive_file}.{number}"]
    return words
