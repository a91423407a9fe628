"""The end of a command's process while functions that heed nothing run on: it does not wait for them.

Python waits at its end for the threads of pools, and `asyncio.run` for tasks, however long they take. By then their
messages are given back, and another worker runs them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from shardq.clock import SystemClock

log = logging.getLogger("shardq")
PARTING: Final = 1.0
"""Seconds that functions have to end after they were asked to, when their grace was over."""
LOOK_INTERVAL: Final = 0.02
"""Seconds between two looks whether they have."""
FLUSH: Final = 0.5
"""Seconds that the last lines have to go out: a thread that hangs may hold the lock of a stream."""


class Pool(ThreadPoolExecutor):
    """The executor in which `asyncio.to_thread` runs functions. It knows how many of them run, or wait for a thread."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="asyncio")
        self._futures: set[Future[Any]] = set()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run *function* in a thread."""
        future = super().submit(function, *args, **kwargs)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    @property
    def running(self) -> int:
        """How many functions have not ended."""
        return len(self._futures)


def leave(hangs: Callable[[], int]) -> None:
    """End this process, with exit code 0, if functions run on; *hangs* returns how many. Else return."""
    clock, pause = SystemClock(), threading.Event()
    end = clock.monotonic() + PARTING
    while hangs() and clock.monotonic() < end:
        pause.wait(LOOK_INTERVAL)  # threads end without a word
    if (left := hangs()) > 0:
        last = threading.Timer(FLUSH, os._exit, (0,))
        last.daemon = True
        last.start()
        log.warning("%d functions run on after the grace, and end with this process", left)
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # the disk is full; closed; None
                stream.flush()
        os._exit(0)
