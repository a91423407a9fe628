"""How threads share the calls of those who wait for none: threads of a pool make them.

The twin of what `AsyncSharing.post` does with tasks. Such a caller may find itself the leader of a call when another
thread leaves; then a thread of the pool leads for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar

from shardq.clock import Clock
from shardq.drivers.permits import MIN_TRY
from shardq.drivers.sharing import PATIENCE, Sharing
from shardq.ops.sharing.caller import Caller, Phase, must_tell, posted
from shardq.ops.sharing.coalescing import Coalescer
from shardq.timing import ThreadTimer

I = TypeVar("I")  # noqa: E741 (an item: what a caller wants)
R = TypeVar("R")
MAX_CALLS_UNDER_WAY: Final = 2
"""Calls of one coalescer under way, unless they take long: more compete for the interpreter."""

MAX_PATIENT_CALLS: Final = 4
"""Calls that are under way after callers have waited for `PATIENCE`."""

THREADS: Final = 32
"""A pool starts a thread when all others are busy. All are busy only when Redis hangs."""


class Posting:
    """Makes shared calls for callers that no thread waits for. Threads share it; a forked child needs its own."""

    def __init__(self, sharing: Sharing, timer: ThreadTimer, clock: Clock) -> None:
        self._sharing, self._timer, self._clock = sharing, timer, clock
        self._pool = ThreadPoolExecutor(THREADS, "shardq-writer")
        self._lock = Lock()
        self._watched: set[Coalescer[Any, Any]] = set()

    def post(
        self,
        coalescer: Coalescer[I, R],
        item: I,
        until: float,
        lane: Hashable,
        tell: Callable[[R | Exception], object],
    ) -> None:
        """Make a shared call for *item*, after those of its *lane*. Nobody waits: `tell` gets its result or error.

        A thread of the pool calls `tell`, so it must be short.
        """
        caller: Caller[I, R] = posted(item, until, lane)
        caller.wake = partial(self._wake, coalescer, caller, tell)
        if coalescer.add(caller, MAX_CALLS_UNDER_WAY):
            self._submit(self._start, coalescer)
        if coalescer not in self._watched:
            self._watch(coalescer)

    def close(self) -> None:
        """Let the threads end with what they do. Calls that are posted later are made in the thread that posts them."""
        self._pool.shutdown(wait=False)

    def _submit(self, function: Callable[..., object], *args: object) -> None:
        try:
            self._pool.submit(function, *args)
        except RuntimeError:  # the pool was closed, or the interpreter ends
            function(*args)

    def _start(self, coalescer: Coalescer[Any, Any]) -> None:
        """Make the call that `may_start`."""
        shared = coalescer.take()
        if shared is not None:
            self._lead(coalescer, shared.callers[0])
        elif coalescer.done(MAX_CALLS_UNDER_WAY):
            self._submit(self._start, coalescer)

    def _lead(self, coalescer: Coalescer[Any, Any], leader: Caller[Any, Any]) -> None:
        self._sharing.lead(coalescer, leader)
        leader.wake()

    def _wake(self, coalescer: Coalescer[Any, Any], caller: Caller[Any, Any], tell: Callable[[Any], object]) -> None:
        if caller.phase is Phase.LEADING:
            self._submit(self._lead, coalescer, caller)
            return
        with coalescer.lock:
            must = must_tell(caller)
        if must:
            tell(caller.result)

    def _watch(self, coalescer: Coalescer[Any, Any]) -> None:
        """Look after those who wait, as long as somebody does."""
        with self._lock:
            if coalescer in self._watched:
                return
            self._watched.add(coalescer)
        self._timer.call_later(PATIENCE, self._ring, coalescer)

    def _ring(self, coalescer: Coalescer[Any, Any]) -> None:
        """End the waits whose time is up, and let those who have waited long start another call."""
        with self._lock:
            self._watched.discard(coalescer)
        for caller in coalescer.expire(self._clock.monotonic(), MIN_TRY):
            caller.wake()
        if coalescer.may_start(MAX_PATIENT_CALLS, at_once=True):
            self._submit(self._start, coalescer)
        if coalescer.earliest() is not None:
            self._watch(coalescer)
