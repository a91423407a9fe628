"""SIGTERM and SIGINT: the first one stops a worker, the second one ends the process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

MAX_WAIT = 1.0
"""Seconds that a main thread sleeps at most. Python runs signal handlers in the main thread, when it is awake: a signal
that came just before it fell asleep, or that another thread was told of, does not wake it."""


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that stop a program: SIGTERM, and SIGINT unless it was started with that one ignored.

    So a shell starts what it puts into the background: the next Ctrl-C in its terminal is for another program. SIGTERM
    is meant for whom it is sent to.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return (signal.SIGTERM,) if ignored else (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stopping(stop: Callable[[], object], leave: Callable[[], object], wanted: bool = True) -> Iterator[None]:
    """Within: the first signal calls *stop*, the second one *leave* and then ends the process at once.

    At once means without cleaning up, whatever handlers hold or do: the exit code is 128 + the signal's number, as
    shells have it. Only the main thread can have signals; elsewhere, or if not *wanted*, nothing changes. The earlier
    handlers come back.
    """
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        asked.append(number)
        if len(asked) == 1:
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
