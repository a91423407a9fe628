"""How SIGINT and SIGTERM end a pipeline: the first one in order and with one line, the second one at once."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from shardq.cli.exits import TERMINATED
from shardq.cli.pipelines.status_line import StatusLine
from shardq.clock import SystemClock
from shardq.worker.signals import SignalEvent, stop_signals

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

GRACE: Final = 10.0
"""Seconds that a batch may continue. It is broken off then, which loses nothing: the next run does it again."""

PATIENCE: Final = 2.0
"""Seconds after which a user who waits for it to end learns why."""


class Ending:
    """Heeds signals while a pipeline runs. `number` is the first one that came, None as long as none has.

    A pipeline that *follows* a stream ends as if there were nothing more to read, so that it reports. Any other is
    interrupted. A handler must not call Spark, whose answer to another call the main thread may be reading.
    """

    def __init__(self, line: StatusLine, *, follows: bool) -> None:
        self.number: int | None = None
        self.follows, self._line = follows, line
        self._came, self._over = SignalEvent(), threading.Event()
        self._numbers, self._stops = stop_signals(), False
        self._logged = logging.root.manager.disable

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Heed signals in this context, if it is entered in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        reading, writing = socket.socketpair()
        writing.setblocking(False)
        woken = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._leave_at_second, args=(reading,), name="heeding signals", daemon=True).start()
        self.heed()
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken)
            writing.close()  # which ends that thread
            self._over.set()
            self._came.set()  # and this the other
            logging.disable(self._logged)
            for number, handler in before.items():
                signal.signal(number, handler)

    def heed(self) -> None:
        """Take the handlers again: a new SparkContext sets one of its own for SIGINT, which prints 50 lines."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._on_signal if number in self._numbers else signal.SIG_IGN)

    def stops(self, spark: SparkSession) -> None:
        """Let the first signal stop the queries of *spark*, on a thread of its own, if the pipeline follows any."""
        self.heed()
        if self.follows:
            self._stops = True
            threading.Thread(target=self._stop_queries, args=(spark,), name="ending queries", daemon=True).start()

    def check(self) -> None:
        """Raise what ends the command if a signal came: no further step begins."""
        if self.number is not None:
            self.leave()

    def leave(self) -> None:
        """Raise what ends the command with the exit code of the signal that came."""
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(TERMINATED)

    def told(self) -> str:
        """The line about the signal that came."""
        name = "Ctrl-C" if self.number == signal.SIGINT else "SIGTERM"
        return f"ended by {name}; run it again, and it continues with the rest"

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.number is not None:
            return  # the thread ends the process
        self.number = number
        self._line.forwards = False  # Spark's errors would be those of its tasks that end now
        logging.disable(logging.CRITICAL)  # Py4J logs each call that is interrupted, with its stack
        self._came.set()
        if not self._stops:
            self.leave()

    def _leave_at_second(self, reading: socket.socket) -> None:
        """End the process at the second signal. The main thread may be waiting for Spark, and not be woken by it."""
        numbers = b""
        with reading:
            while found := reading.recv(16):
                numbers += bytes(number for number in found if number in self._numbers)
                if len(numbers) > 1:
                    _kill_jvm()
                    os._exit(128 + numbers[1])

    def _stop_queries(self, spark: SparkSession) -> None:
        self._came.wait()
        clock, told = SystemClock(), False
        begun = clock.monotonic()
        while not self._over.wait(0.05):
            with suppress(Exception):  # a query or Spark ended meanwhile
                for query in spark.streams.active:
                    if not query.status["isTriggerActive"] or clock.monotonic() > begun + GRACE:
                        query.stop()
                    elif not told and clock.monotonic() > begun + PATIENCE:
                        told = True
                        self._line.remark("ends after the batch that runs; once more ends it at once")


def _kill_jvm() -> None:
    """Kill the JVM that this process started, if it did."""
    from shardq.spark.pipelines.jvm import kill

    kill()
