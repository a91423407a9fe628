"""Serve until a signal comes."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from shardq.cli.exits import UsageError
from shardq.worker.signals import MAX_WAIT, SignalEvent, stop_signals


@contextlib.contextmanager
def until_a_signal() -> Iterator[SignalEvent]:
    """Within this context SIGTERM and Ctrl-C set an event; a second one ends the program as without it.

    UsageError where this is not the main thread, which alone can take signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("this command takes signals, so it needs the main thread")
    asked = SignalEvent()
    before = {number: signal.getsignal(number) for number in stop_signals()}

    def stop(number: int, _: FrameType | None) -> None:
        asked.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, stop)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for(asked: SignalEvent, look: Callable[[], object] | None = None) -> None:
    """Wait until a signal has come. Meanwhile *look* is called, once a second."""
    while not asked.wait(MAX_WAIT):
        if look is not None:
            look()
