"""The timer: callbacks at their time, on one thread that sleeps until there is something to do.

`Timer` is moved by hand (`run_due`); `ThreadTimer` by a thread of its own, `shardq.timing.loop_timer.LoopTimer` by an
event loop. All have one interface::

    with ThreadTimer() as timer:
        entry = timer.call_later(30.0, extend, delivery)
        entry.cancel()          # True: it will not run
        len(timer)              # how many are pending, exactly
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import weakref
from collections.abc import Callable
from math import ceil
from types import TracebackType
from typing import Any, Final, Self, TypedDict, Unpack

from shardq.clock import Clock, SystemClock
from shardq.errors import ConfigError
from shardq.keys import shown
from shardq.timing.entry import Callback, Entry
from shardq.timing.wheel import DEFAULT_SIZE, TimingWheel

log = logging.getLogger("shardq")

LONGEST_WAIT: Final = 1.0
"""Seconds. Neither a thread's wait nor an event loop's counts the time that the machine slept, so while something is
pending they are cut into pieces: what fell due meanwhile is so much late at most. A look finds nothing in 10 µs.
"""

_GRAIN: Final = 1e-6  # of a tick: 1 ns at 1 ms. Sums of floats miss whole ticks by less, and no clock is finer.
_FAILED: Final = "a callback of the timer failed"
_BAD_DELAY: Final = (TypeError, ValueError, OverflowError)
_new = object.__new__  # half the cost of a class with __init__, in the one place where it counts


def _refusal(delay: object) -> ConfigError:
    return ConfigError(f"a delay must be a finite number of seconds, not {shown(delay)}")


def _run(entry: Entry) -> None:
    try:
        entry.fire()
    except Exception:
        log.exception(_FAILED)


class Settings(TypedDict, total=False):
    """What every timer can be told."""

    tick: float
    wheel_size: int
    clock: Clock
    execute: Callable[..., object]


class Timer:
    """A timer that somebody else moves, with `run_due`: for tests, and for loops that know when to look.

    `tick`: seconds; nothing runs early, and nothing more than a tick late on an idle machine. `wheel_size`: buckets per
    wheel. `clock`: where the time comes from. `execute`: for callbacks that take long, called as `execute(function,
    entry)`, for example the `submit` of a pool; by default they run one after the other where the clock runs. Errors of
    callbacks are logged, and do not stop the clock.
    """

    def __init__(self, **settings: Unpack[Settings]) -> None:
        tick = settings.get("tick", 0.001)
        if not isinstance(tick, int | float) or not 1e-6 <= tick <= 3600:
            raise ConfigError(f"tick must be from 0.000001 to 3,600 seconds, not {shown(tick)}")
        self.tick = float(tick)
        self._monotonic = settings.get("clock", SystemClock()).monotonic
        self._execute: Callable[..., object] | None = settings.get("execute")
        self._size = settings.get("wheel_size", DEFAULT_SIZE)
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._rate = 1 / self.tick
        self._zero = self._monotonic()  # ticks count from here, which keeps the numbers small
        self._wheel = TimingWheel(self._size)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Callback:
        """Call `callback(*args)` in `delay` seconds, at once if that is not above 0. The entry can be cancelled."""
        entry = _new(Callback)
        entry.callback = callback
        entry.args = args
        try:  # `insert` and `_due` written out for the usual case: their calls would be a fifth of the whole
            now = self._monotonic() - self._zero
            due = ceil((now + delay) * self._rate - _GRAIN) if delay > 0 else self._due(now, delay)
        except _BAD_DELAY:
            raise _refusal(delay) from None
        if self._wheel.insert(entry, due):
            self._wake_for(entry)
        return entry

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Callback:
        """Call `callback(*args)` when the clock's `monotonic` is `when`."""
        return self.call_later(when - self._monotonic(), callback, *args)

    def insert(self, entry: Entry, delay: float) -> None:
        """Have `entry` fire in `delay` seconds; if it is pending, then instead of when it was to."""
        try:
            now = self._monotonic() - self._zero
            due = ceil((now + delay) * self._rate - _GRAIN) if delay > 0 else self._due(now, delay)
        except _BAD_DELAY:
            raise _refusal(delay) from None
        if entry.bucket is not None:
            entry.leave()
        if self._wheel.insert(entry, due):
            self._wake_for(entry)

    def _due(self, now: float, delay: float) -> int:
        return int(now * self._rate + _GRAIN) if delay <= 0 else ceil((now + delay) * self._rate - _GRAIN)

    def run_due(self) -> float | None:
        """Run what is due, in order; seconds until the next look, None if nothing is pending."""
        execute = self._execute
        for entry in self._wheel.advance(int((self._monotonic() - self._zero) * self._rate + _GRAIN)):
            try:
                if execute is None:
                    entry.fire()
                else:
                    execute(_run, entry)
            except Exception:
                log.exception(_FAILED)
        return self._pause()

    def _pause(self) -> float | None:
        next_tick = self._wheel.next_expiration()
        return None if next_tick is None else max(0.0, self._zero + next_tick * self.tick - self._monotonic())

    def _wake_for(self, entry: Entry) -> None:
        """*entry* is due sooner than what the clock waits for; it does not stay when the clock cannot be told."""
        try:
            self._wake()
        except BaseException:
            entry.leave()
            raise

    def _wake(self) -> None:
        """Look again at what is due next."""

    def __len__(self) -> int:
        """How many entries are pending: neither run nor cancelled. Exact, also while other threads are busy."""
        return len(self._wheel)

    def __bool__(self) -> bool:
        return True  # an idle timer is still a timer

    def close(self) -> list[Entry]:
        """Stop for good; the entries that were pending, in order. They will not run."""
        self._closed = True
        return self._wheel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Alarm:
    """What a thread waits on. Setting it takes no lock that the same thread may hold, so a finalizer may do it."""

    def __init__(self) -> None:
        self._bells: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """End the wait of now, or the next one."""
        if self._bells.empty():
            self._bells.put(None)

    def clear(self) -> None:
        """Forget that it was set."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._bells.get_nowait()

    def wait(self, seconds: float | None = None) -> None:
        """Until it is set, or so long."""
        with contextlib.suppress(queue.Empty):
            self._bells.get(timeout=seconds)


class ThreadTimer(Timer):
    """A timer with a daemon thread, which starts with the first entry and sleeps while nothing is due.

    Any thread may use it. One that nobody refers to any more ends as if closed: its thread does not keep it. After a
    fork the child's is empty, since the parent runs what was pending; it works, with a thread of its own.
    `wait(alarm, seconds)` is for tests: how the thread waits.
    """

    def __init__(
        self, *, wait: Callable[[Alarm, float | None], object] = Alarm.wait, **settings: Unpack[Settings]
    ) -> None:
        self._wait = wait
        super().__init__(**settings)
        _timers.add(self)

    def _start(self) -> None:
        super()._start()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._alarm = alarm = Alarm()
        self._gone = weakref.ref(self, lambda _: alarm.set())

    def _wake(self) -> None:
        if self._thread is None:
            self._start_thread()
        self._alarm.set()

    def _start_thread(self) -> None:
        with self._starting:
            if self._thread is None and not self._closed:
                of = (self._gone, self._alarm, self._wait)
                thread = threading.Thread(target=_drive, args=of, name="shardq-timer", daemon=True)
                thread.start()
                self._thread = thread

    def close(self) -> list[Entry]:
        """Stop for good; the entries that were pending, in order. They will not run.

        Waits for the callback that runs at this moment, unless it is the one that calls.
        """
        with self._starting:
            self._closed = True
        left = super().close()
        self._alarm.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        return left


def _drive(gone: weakref.ref[ThreadTimer], alarm: Alarm, wait: Callable[[Alarm, float | None], object]) -> None:
    """The life of the thread of a timer. It knows the timer only while it looks, so that the timer can go."""
    while (timer := gone()) is not None and not timer._closed:
        alarm.clear()  # before looking, so that no insert goes unnoticed
        try:
            pause = timer.run_due()
        except BaseException:  # a callback that wants to end its thread must not end everybody's timers
            log.exception(_FAILED)
            continue
        closed = timer._closed
        del timer
        if not closed:
            wait(alarm, None if pause is None else min(pause, LONGEST_WAIT))


_timers: weakref.WeakSet[ThreadTimer] = weakref.WeakSet()


def _after_fork() -> None:
    for timer in _timers:
        timer._start()


os.register_at_fork(after_in_child=_after_fork)
