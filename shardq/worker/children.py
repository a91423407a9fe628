"""Child processes that run handlers, each one message at a time. If one dies, only its message fails.

They are started with `multiprocessing`'s spawn, which is safe in a program with threads. A child imports what the
handler's module imports. Messages and answers are sent through a pipe as MessagePack. Children ignore SIGTERM, SIGINT
and SIGHUP, which a terminal or a service manager sends to all processes of a group: the parent drains the worker, and
a child ends when the parent closes its pipe.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Literal, NamedTuple, cast

import msgspec

from shardq.clock import SystemClock
from shardq.codec import Codecs
from shardq.errors import ConfigError, ProcessDied
from shardq.model import DeliveryView, QueueConfig, Received
from shardq.model.failed import FailedTry, class_of, is_a, name_of
from shardq.model.failure import FailureReason
from shardq.ops.results.keep import kept_result
from shardq.platforms import need_fork
from shardq.protocol.lease import deliveries_in
from shardq.protocol.results import KeptResult
from shardq.telemetry.family import Family, current_family
from shardq.telemetry.pipe import Follower, told_to
from shardq.timing import Entry
from shardq.worker import guard
from shardq.worker.application import Application, calls_of
from shardq.worker.call import Environment
from shardq.worker.contexts import Contexts
from shardq.worker.outcome import Failed, GiveBack, HandlerFailed, Nack, Reject, outcome_of, unfit
from shardq.worker.signals import HANGUP
from shardq.worker.state import WorkerJob

MAX_TRACE = 4000
LEAVE_TIMEOUT = 5.0
"""Seconds that a child may take to close what its tasks have opened."""
START_TIMEOUT = 60.0
"""Seconds that a child may take to import the handler."""
IGNORED_SIGNALS = (signal.SIGTERM, signal.SIGINT, *filter(None, (HANGUP,)))
"""The signals that children ignore."""


class ChildAnswer(NamedTuple):
    """A child's answer: it is ready, or how its handler ended. Without a `delay` the worker's backoff decides."""

    kind: Literal["ready", "done", "nack", "reject", "give back", "failed"]
    text: str = ""
    delay: float | None = None
    trace: str = ""
    result: KeptResult | None = None
    gives_up: bool = False
    error_type: str = ""
    reason: str = ""
    frames: str = ""


class Child:
    """One process and this process's end of its pipe. `job` is the job that it works on."""

    def __init__(
        self, handle: Callable[..., object] | Application, codecs: Codecs, family: Family | None = None
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.job: WorkerJob | None = None
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            self.pipe, pipe = context.Pipe()
            ours.callback(self.pipe.close)
            theirs.callback(pipe.close)
            numbers = None
            if family is not None:
                told, number = os.pipe()
                numbers = Connection(number, readable=False)
                ours.callback(os.close, told)
                theirs.callback(numbers.close)
            self.process: BaseProcess = context.Process(
                target=work, args=(pipe, handle, codecs, numbers), name="shardq-handler", daemon=False
            )
            before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED_SIGNALS)  # until the child can ignore them
            try:
                self.process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            ours.pop_all()  # it runs
        self._follower = None if family is None else Follower(told, family)
        self._ready = False

    def wait_ready(self) -> None:
        """Wait until it has imported the handler; ProcessDied if it cannot, or not in time."""
        try:
            if not self._ready and not self.pipe.poll(START_TIMEOUT):
                self.kill()
            self._ready = self._ready or self._answer().kind == "ready"
        except (EOFError, OSError) as error:
            raise ProcessDied(self._end()) from error

    def handle(self, received: Received, keeps: int | None = None) -> ChildAnswer:
        """Have the child handle one message; ProcessDied if it ends meanwhile.

        The answer has the result, which may have *keeps* bytes; none if that is None.
        """
        # Only this process settles it: the child gets the number of the delivery from the lease token, and no proof.
        without_lease = msgspec.structs.replace(received, token=f"::{deliveries_in(received.token)}:")
        try:
            self.pipe.send_bytes(msgspec.msgpack.encode((without_lease, keeps)))
            return self._answer()
        except (EOFError, OSError) as error:
            raise ProcessDied(self._end()) from error

    def _answer(self) -> ChildAnswer:
        return msgspec.msgpack.decode(self.pipe.recv_bytes(), type=ChildAnswer)

    def _end(self) -> str:
        self.process.join(5)
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"the handler's process was killed by {signal.Signals(-code).name}"
        return f"the handler's process ended with exit code {code}"

    def kill(self) -> None:
        """Send SIGKILL; safe within a signal handler."""
        with contextlib.suppress(Exception):
            self.process.kill()

    def close(self) -> None:
        """Kill the process if it runs, and free its pipe and its entry in the process table.

        Not `process.close()`: when the program ends, multiprocessing joins all processes, and raises ValueError if a
        thread of the worker has just closed one. The rest is freed with the object.
        """
        self.kill()
        self.pipe.close()
        with contextlib.suppress(Exception):
            self.process.join(5)
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.end()


class Children:
    """The children of one worker. They are started when they are needed, used again, and replaced when they die."""

    def __init__(
        self,
        handle: Callable[..., object] | Application,
        codecs: Codecs,
        start_limit: Callable[[WorkerJob], Entry | None],
    ) -> None:
        need_fork("run_in='processes'")
        self._handle, self._codecs, self._start_limit = handle, codecs, start_limit
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._family = current_family()

    def check(self) -> None:
        """Start the first child; ConfigError if the handler cannot be imported there."""
        try:
            child = self._start()
            self._idle.append(child)
            child.wait_ready()
        except Exception as error:  # noqa: BLE001 (pickling raises what it likes)
            raise ConfigError(
                "run_in='processes' needs a handler (and codecs) that a new process can import: "
                f"a function at the top of a module, not a lambda or a closure ({error})"
            ) from None

    def run(self, job: WorkerJob, config: QueueConfig) -> KeptResult | None:
        """Handle *job* in a child; raises what its handler raised, or ProcessDied. Return its result if it is kept."""
        with self._lock:
            child = self._idle.pop() if self._idle else None
        child = child or self._start()
        with self._lock:
            child.job = job
        job.handle = child
        if job.delivery.lost:  # `kill` came before the job had a child
            child.kill()
        limit: Entry | None = None
        try:
            child.wait_ready()
            limit = self._start_limit(job)  # it does not include the start of a process
            answer = child.handle(job.delivery.received, config.max_result_size if config.result_ttl else None)
        except BaseException:  # nobody knows what the child does now, so it is not used again
            self._forget(child)
            raise
        finally:
            if limit is not None:
                limit.cancel()
            with self._lock:
                job.handle = child.job = None
        with self._lock:
            self._idle.append(child)
        _raise(answer)
        return answer.result

    def kill(self, job: WorkerJob) -> None:
        """End the handling of *job*, whose lease is lost."""
        with self._lock:  # without the lock the child could be working on another job by now
            child = job.handle
            if child is not None and child.job is job:
                child.kill()

    def pids(self) -> list[int]:
        """Return the ids of the processes that run."""
        return [child.process.pid for child in self._all.copy() if child.process.pid is not None]

    def kill_all(self) -> None:
        """Kill all children. Takes no lock, because a signal handler may call it."""
        for child in self._all.copy():
            child.kill()

    def close(self) -> None:
        """End all children, and free the idle ones.

        Those that run tasks may close what they have opened, and those that measure may tell what they have not told.
        """
        with self._lock:
            idle, self._idle = self._idle, []
        if isinstance(self._handle, Application) or self._family is not None:
            for child in idle:
                child.pipe.close()  # then it ends by itself
            for child in idle:
                with contextlib.suppress(Exception):
                    child.process.join(LEAVE_TIMEOUT)
        self.kill_all()
        for child in idle:
            self._forget(child)

    def _start(self) -> Child:
        child = Child(self._handle, self._codecs, self._family)
        self._all.add(child)
        return child

    def _forget(self, child: Child) -> None:
        self._all.discard(child)
        child.close()


def _raise(answer: ChildAnswer) -> None:
    match answer.kind:
        case "nack":
            raise Nack(answer.delay, answer.text)
        case "reject":
            if answer.reason:
                raise unfit(answer.text, cast("FailureReason", answer.reason), answer.error_type)
            raise Reject(answer.text)
        case "give back":
            raise GiveBack(answer.delay or 0.0, answer.text, cast("FailureReason", answer.reason or "retry"))
        case "failed":
            failed = HandlerFailed(FailedTry(answer.text, answer.error_type, answer.reason, answer.frames))
            failed.add_note(f"in the handler's process:\n{answer.trace}")
            raise Failed(failed, answer.delay, answer.text, gives_up=answer.gives_up)


# --- in the child --------------------------------------------------------------------------------------------------


def work(
    pipe: Connection, handle: Callable[..., object] | Application, codecs: Codecs, numbers: Connection | None = None
) -> None:
    """The main function of a child: handle messages that come through *pipe*, until the pipe is closed.

    Through *numbers* it tells what its handlers did with clients of their own.
    """
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED_SIGNALS)
    contexts = Contexts()
    lifespans = handle.lifespans() if isinstance(handle, Application) else ()
    environment = Environment("", SystemClock(), None, contexts.fresh, None)
    with contextlib.ExitStack() as stack, contextlib.suppress(EOFError, OSError):
        if numbers is not None:
            stack.enter_context(told_to(os.dup(numbers.fileno())))
            numbers.close()
        for each in lifespans:
            if not isinstance(each, contextlib.AbstractContextManager):
                raise ConfigError("the lifespan is async: it needs run_in='threads', since a child has no event loop")
            stack.enter_context(each)
        contexts.keep()
        call_of = calls_of(handle, environment)
        pipe.send_bytes(msgspec.msgpack.encode(ChildAnswer("ready")))
        while True:
            fields, keeps = msgspec.msgpack.decode(pipe.recv_bytes())
            received = Received(**fields)  # msgspec knows no union of str and bytes
            job = WorkerJob(DeliveryView(received, codecs, SystemClock()))
            job.call = call_of(job.delivery)
            answer = contexts.fresh().run(_handled, job, codecs, keeps)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            pipe.send_bytes(msgspec.msgpack.encode(answer))


def _handled(job: WorkerJob, codecs: Codecs, keeps: int | None) -> ChildAnswer:
    """Handle *job*. The answer has the result of at most *keeps* bytes, none if that is None."""
    try:
        value = guard.checked(job.call.run(job), job.call.where)
        kept = None if keeps is None else kept_result(codecs, keeps, value, job.call.returns)
        return ChildAnswer("done", result=kept)
    except BaseException as error:  # noqa: BLE001 (SystemExit in a handler is a failure of the handler; the child continues)
        return _answer_to(guard.judged_by_call(error, job))


def _answer_to(error: BaseException) -> ChildAnswer:
    """Return the answer for a handler's *error*."""
    try:
        outcome = outcome_of(error, lambda: math.nan)
        delay = None if math.isnan(outcome.delay) else outcome.delay
        if is_a(error, (Nack, Reject, GiveBack)):
            kind, trace = str(outcome.verb), ""
        else:
            kind, trace = "failed", _trace(error.error if is_a(error, Failed) else error)
        return ChildAnswer(
            kind,  # type: ignore[arg-type]  # none of them is an ack
            outcome.text,
            delay,
            trace,
            gives_up=outcome.verb == "reject",
            error_type=outcome.error_type,
            reason=outcome.reason,
            frames=outcome.frames,
        )
    except BaseException:  # noqa: BLE001 (whatever the error's class does)
        return ChildAnswer("failed", name_of(error), None, _trace(error), error_type=class_of(error))


def _trace(error: BaseException) -> str:
    return guard.traced(error)[-MAX_TRACE:]
