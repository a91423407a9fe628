"""SIGTERM and SIGINT: the first one stops a worker, the second one ends the process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

MAX_WAIT = 1.0
"""Seconds that a main thread sleeps at most. Python runs signal handlers in the main thread while it is awake. A signal
that came just before it fell asleep, or that the kernel delivered to another thread, does not wake it."""


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that stop a program: SIGTERM, and SIGINT unless it was started with that one ignored.

    A shell starts background jobs with SIGINT ignored, because Ctrl-C in its terminal is meant for another program.
    SIGTERM is always meant for the process that it is sent to.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return (signal.SIGTERM,) if ignored else (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stopping(stop: Callable[[], object], leave: Callable[[], object], wanted: bool = True) -> Iterator[None]:
    """Within this context the first signal calls *stop*; the second one calls *leave* and ends the process at once.

    It ends without cleaning up, whatever handlers are doing; the exit code is 128 + the signal's number, as in shells.
    Only the main thread can handle signals: in another thread, or if not *wanted*, nothing changes. At the end of the
    context the earlier signal handlers are set again.
    """
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            stop()
        else:
            leave()
            os._exit(128 + number)

    before = {number: signal.signal(number, on_signal) for number in stop_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
