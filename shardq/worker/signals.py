"""SIGTERM and SIGINT: the first one stops all workers of the process, the second one ends it. SIGHUP only stops them.

A service manager may send one to each process of a group, while the parent of this one hands its own on (`relay`). So
those of a parent and all others are counted apart: the second one of either kind ends the process. SIGHUP is not
counted: a terminal that closes sends it more than once, and some service managers send it beside SIGTERM.

All workers share one handler, from the first one that runs in the main thread (only there can Python set a handler)
until the last one leaves. The handler that was set before is called, too, if a program chose it, and put back at the
end.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, NamedTuple, TypeAlias

from shardq.platforms import after_fork

MAX_WAIT = 1.0
"""Seconds that a main thread sleeps at most. Python runs signal handlers in the main thread while it is awake. A signal
that came just before it fell asleep, or that the kernel delivered to another thread, does not wake it."""

HANGUP: Final[signal.Signals | None] = getattr(signal, "SIGHUP", None)
"""The signal of a terminal that closes. None on Windows, which has none."""

Found: TypeAlias = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None
"""The result of `signal.getsignal`; None stands for a handler that was not set by Python, which cannot put it back."""


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that stop a program: SIGTERM, and SIGINT unless it was started with that one ignored.

    A shell starts background jobs with SIGINT ignored, because Ctrl-C in its terminal is meant for another program.
    SIGTERM is always meant for the process that it is sent to.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return (signal.SIGTERM,) if ignored else (signal.SIGTERM, signal.SIGINT)


def worker_signals() -> tuple[signal.Signals, ...]:
    """The signals that stop a worker: those that stop a program, and SIGHUP unless that has another use here.

    It comes when the terminal closes, and would end the process with all that it holds. `nohup` has it ignored, and
    many programs read their settings again.
    """
    if HANGUP is None or _beneath(HANGUP) is not signal.SIG_DFL:
        return stop_signals()
    return (*stop_signals(), HANGUP)


@contextlib.contextmanager
def stopping(stop: Callable[[], object], leave: Callable[[], object], wanted: bool = True) -> Iterator[None]:
    """Within this context the first signal calls *stop*; the second one calls *leave* and ends the process at once.

    SIGHUP calls *stop*, however often it comes.

    It ends without cleaning up, whatever handlers are doing; the exit code is 128 + the signal's number, as in shells.
    If not *wanted*, nothing changes. In another thread than the main one, signals count only if a worker has begun in
    the main thread, too. An exception of the program's own handler is raised at the end, unless the context raises.
    """
    if not wanted:
        yield
        return
    member = GroupMember(stop, leave, threading.current_thread() is threading.main_thread())
    try:
        _join(member)
        yield
    finally:
        raised = _leave(member)
    if raised is not None:
        raise raised


def hosted() -> bool:
    """Whether this code runs in the event loop of a program that has signal handlers of its own.

    Such a program (uvicorn, say) decides what a signal ends, and in which order. The handler of `asyncio.run` is no
    such choice: it is what Ctrl-C does everywhere, and would cancel the message handlers instead of letting them
    finish. Loops of other threads than the main one cannot have signal handlers.
    """
    here = threading.current_thread() is threading.main_thread()
    return here and any(_chosen(_beneath(number)) for number in stop_signals())


class SignalEvent:
    """An event that handlers of signals set: they may interrupt the main thread anywhere while it waits.

    There `threading.Event` holds a lock for moments, for which its `set` would wait for ever.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """Wake the thread that waits."""
        self._is_set = True
        self._wakes.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set, or until *seconds* have passed. Return whether it is set. One thread may wait."""
        if not self._is_set:
            with contextlib.suppress(queue.Empty):
                self._wakes.get(timeout=seconds)
        return self._is_set


class GroupMember(NamedTuple):
    """A worker that runs: how a signal stops it, and what is left to do before the process is ended at once."""

    stop: Callable[[], object]
    leave: Callable[[], object]
    in_main: bool


class SharedHandler:
    """The signal handler of all workers that run.

    It takes no lock, since it may interrupt the holder. It raises nothing while a worker runs in the main thread: an
    exception would cut off what that is doing, anywhere, instead of letting it drain.
    """

    def __init__(self) -> None:
        self.members: dict[int, GroupMember] = {}
        self.before: dict[int, Found] = {}
        self.stops = False
        self.received = 0
        self.relayed = 0
        self.raised: BaseException | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Stop all workers, and call what was set before; or end the process at once."""
        if not self.members:
            self._pass_on(number, frame)
            return
        self.stops = True  # first: who joins from now on stops by itself
        self.received += number != HANGUP
        members = list(self.members.values())
        if max(self.relayed, self.received - self.relayed) > 1:
            for member in members:
                member.leave()
            os._exit(128 + number)
        for member in members:
            member.stop()
        before = self.before[number]
        if callable(before) and _chosen(before):
            try:
                before(number, frame)
            except BaseException as error:
                if not self.works_in_main:
                    raise
                self.raised = error

    @property
    def works_in_main(self) -> bool:
        """Whether any of the workers runs in the main thread."""
        return any(member.in_main for member in list(self.members.values()))

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """Do what the signal did before: the last worker left in a thread, or somebody set this handler again."""
        before = self.before[number]
        if signal.getsignal(number) is self:
            signal.signal(number, before)
            if not callable(before):
                signal.raise_signal(number)
        if callable(before):
            before(number, frame)

    def install(self) -> None:
        """Set this handler, once for each signal: a handler that replaces it meanwhile shall keep the signal."""
        for number in worker_signals():
            before = _beneath(number)
            if number not in self.before and before is not None:
                self.before[number] = before
                signal.signal(number, self)

    def put_back(self) -> None:
        """Set what was set before, except where somebody has replaced this handler."""
        for number, before in self.before.items():
            if signal.getsignal(number) is self:
                signal.signal(number, before)


_shared = SharedHandler()
_lock = threading.Lock()


def relay(number: int) -> None:
    """Do in this process what a signal does that its parent was sent. Another thread than the main one calls this."""
    if number == HANGUP and not isinstance(signal.getsignal(number), SharedHandler):
        number = signal.SIGTERM  # here it does something else
    _shared.relayed += number != HANGUP  # first: the handler must not take it for one of this process's own
    signal.pthread_kill(threading.main_thread().ident or 0, number)  # the main thread must wake for it


def _join(member: GroupMember) -> None:
    """Let *member* be stopped by signals: at once, if one has come and other workers still end for it."""
    with _lock:
        _shared.members[id(member)] = member
        if member.in_main:
            _shared.install()
        if _shared.stops:
            member.stop()


def _leave(member: GroupMember) -> BaseException | None:
    """Forget *member*. The error of the program's handler, if this was the last member in the main thread.

    The last one of all puts back what was set before. In another thread it cannot; then the handler does it when a
    signal comes, and until then does nothing.
    """
    global _shared
    with _lock:
        handler = _shared
        handler.members.pop(id(member), None)  # in a forked child it is gone already
        if not handler.members:
            _shared = SharedHandler()
            if member.in_main:
                handler.put_back()
    if not member.in_main or handler.works_in_main:
        return None
    raised, handler.raised = handler.raised, None
    return raised


def _beneath(number: int) -> Found:
    """The handler of signal *number* that is set, or if that is of this module, the one that was set before it."""
    found: Found = signal.getsignal(number)
    while isinstance(found, SharedHandler):
        found = found.before[number]
    return found


def _chosen(handler: Found) -> bool:
    """Whether a program has set *handler*: it is neither a default of Python nor that of `asyncio.run`."""
    if isinstance(handler, functools.partial):
        return not isinstance(getattr(handler.func, "__self__", None), asyncio.Runner)
    return handler is None or (callable(handler) and handler is not signal.default_int_handler)


def _after_fork() -> None:
    """A forked child has none of the workers: there, signals do what they did before."""
    global _shared, _lock
    inherited, _shared, _lock = _shared, SharedHandler(), threading.Lock()
    inherited.members.clear()
    inherited.put_back()


after_fork(_after_fork)
