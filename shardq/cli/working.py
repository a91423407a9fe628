"""The course of `shardq worker`: it works in this process, or has others work."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from shardq import __version__
from shardq.cli.exits import OK, UsageError
from shardq.cli.handlers import imported
from shardq.cli.parsing import Args
from shardq.cli.reloading import Reloader
from shardq.cli.shell import Shell
from shardq.cli.speech import Speech
from shardq.cli.supervisor import Supervisor
from shardq.cli.text import plural, shown_url
from shardq.client import Queue
from shardq.clock import SystemClock
from shardq.tasks import Several, Tasks
from shardq.telemetry.pipe import told_to
from shardq.worker import Worker
from shardq.worker.ending import leave
from shardq.worker.outcome import Verb
from shardq.worker.process_one import go_on_below
from shardq.worker.signals import relay, stop_signals

TASKS: Final = (Tasks, Several)
_PASSED: Final = (
    "queue", "concurrency", "run_in", "read_ahead", "time_limit", "grace", "alive_file", "until", "log_format",
)  # fmt: skip
"""The options with values that a parent passes on to its worker processes."""


def work(args: Args, shell: Shell) -> int:
    """Work until a signal comes."""
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("shardq worker takes signals, so it needs the main thread: elsewhere use Worker(...).run()")
    for each in stop_signals():
        signal.signal(each, _end)
    go_on_below()
    speech = Speech(args.log_format, _level(args))
    speech.listen()
    if args.reload:
        environment = os.environ | {"SHARDQ_URL": shell.url}  # no argument: it may hold a password
        return Reloader(_arguments(args), environment, Path.cwd(), speech).run()
    if args.supervised and args.processes == 1:
        _heed_parent()
    with _measured(args, shell, speech):
        handle, weights = handled(args.handlers, args.queue)
        if args.processes > 1:
            return Supervisor(shell.url, shell.timeout, lambda n: _arguments(args, n), args.processes, speech).run()
        worker = _work(args, shell, speech, handle, weights)
    leave(lambda: worker.hangs)
    return OK


@contextlib.contextmanager
def _measured(args: Args, shell: Shell, speech: Speech) -> Iterator[None]:
    """Serve the numbers of this worker, or tell them to its parent, if that is wanted."""
    if args.metrics is None and args.metrics_pipe is None:
        yield
        return
    if args.metrics is None:
        begun = told_to(args.metrics_pipe)
    else:
        from shardq.cli.metrics import metrics_on  # with an HTTP server, which most workers do not need

        begun = metrics_on(args.metrics, shell, speech.say)
    with begun:
        yield


def _work(args: Args, shell: Shell, speech: Speech, handle: Any, weights: Mapping[Any, int]) -> Worker:
    """Work in this process, and return the worker, which has ended."""
    queues = {shell.client.queue(of): weight for of, weight in weights.items()}
    what = plural(len(handle), "task") if isinstance(handle, TASKS) else args.handlers[0]
    speech.say(
        f"worker {os.getpid()}, version {__version__}: {what}, {_named(queues)} at {shown_url(shell.url)}, "
        f"concurrency {args.concurrency}"
    )
    began = SystemClock().monotonic()
    worker = Worker(
        queues,
        handle,
        run_in=args.run_in,
        concurrency=args.concurrency,
        read_ahead=args.read_ahead,
        time_limit=args.time_limit,
        grace=args.grace,
        alive=args.alive_file,
        signals=True,
        until=args.until,
    )
    worker.run()
    speech.say(f"worker {os.getpid()} ended after {SystemClock().monotonic() - began:.1f} s: {_told(worker.tally)}")
    return worker


def handled(words: Sequence[str], queue: str | None) -> tuple[Any, dict[Any, int]]:
    """Return what a worker runs, and its queues with their weights, each a name or a Tasks. UsageError."""
    if len(words) == 1 and "=" not in words[0]:
        handle = imported(words[0])
        if not queue and not isinstance(handle, Tasks):
            raise UsageError(f"--queue is missing: {words[0]} is a function, which knows no queue")
        return handle, {queue or handle: 1}
    if queue:
        raise UsageError("--queue is for one handler: each of several Tasks knows its queue")
    weights: dict[Any, int] = {}
    for word in words:
        name, equals, weight = word.partition("=")
        found: Any = imported(name)
        if not isinstance(found, Tasks):
            raise UsageError(f"{name} is a function: only a Tasks can have a weight, or be one of several")
        if equals and not re.fullmatch("[1-9][0-9]{0,2}|1000", weight):
            raise UsageError(f"the weight of {name} must be from 1 to 1000, as in {name}=3, not {weight!r}")
        if found in weights:
            raise UsageError(f"{name} is there twice")
        weights[found] = int(weight) if equals else 1
    return (Several(*weights) if len(weights) > 1 else next(iter(weights))), weights


def _named(queues: Mapping[Queue, int]) -> str:
    if len(queues) == 1:
        return f"queue {next(iter(queues)).name!r}"
    return "queues " + ", ".join(f"{each.name!r} (weight {weight})" for each, weight in queues.items())


def _told(tally: Mapping[Verb, int]) -> str:
    return f"{tally['ack']:,} done, {tally['nack'] + tally['reject']:,} failed, {tally['give back']:,} given back"


def _end(number: int, _: FrameType | None) -> None:
    """End this process as it is: until the worker handles signals itself it has no messages.

    Then the worker's handler calls this one, which leaves the end to the worker. An exception could be lost: Python
    ignores those that leave destructors and callbacks of weak references.
    """
    if signal.getsignal(number) is _end:
        os._exit(OK)


def _heed_parent() -> None:
    """Do what the signals do whose numbers the parent writes into its pipe, and stop when it has ended."""
    # Programs that handlers start have the same stdin, and one that reads would take what is meant for this process.
    pipe, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def heed() -> None:
        told = False
        while sent := os.read(pipe, 1):
            relay(sent[0])
            told = True
        if not told:
            relay(signal.SIGTERM)

    threading.Thread(target=heed, name="shardq-parent-watch", daemon=True).start()


def _level(args: Args) -> int:
    if args.verbose and args.quiet:
        raise UsageError("--verbose and --quiet cannot be both")
    return logging.DEBUG if args.verbose else logging.WARNING if args.quiet else logging.INFO


def _arguments(args: Args, number: int | None = None) -> list[str]:
    """The arguments of worker process *number*, from 1; or without a number, of one that is restarted."""
    values = vars(args) | {"alive_file": args.alive_file and f"{args.alive_file}.{number}"} if number else vars(args)
    names = _PASSED if number else (*_PASSED, "processes", "metrics")
    words = [f"--{each.replace('_', '-')}={values[each]}" for each in names if values[each] is not None]
    flags = [f"--{each}" for each in ("verbose", "quiet") if values[each]]
    return [*args.handlers, "--supervised", *words, *flags]
