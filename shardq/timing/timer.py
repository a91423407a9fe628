"""Timers, which run callbacks at their time.

`run_due` runs the entries that are due. A `Timer` leaves it to its user to call that; a `ThreadTimer` has a thread of
its own for it, which sleeps until the next entry is due; a `shardq.timing.loop_timer.LoopTimer` uses an event loop. All
have one interface::

    with ThreadTimer() as timer:
        entry = timer.call_later(30.0, extend, delivery)
        entry.cancel()          # True: it will not run
        len(timer)              # how many are pending, exactly
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import weakref
from collections.abc import Callable
from math import ceil
from types import TracebackType
from typing import Any, Final, Self, TypedDict, Unpack

from shardq.arguments import check_clock, check_known, flag, function, shown
from shardq.clock import Clock, SystemClock
from shardq.errors import ConfigError
from shardq.platforms import after_fork
from shardq.timing.entry import Callback, Entry
from shardq.timing.wheel import DEFAULT_SIZE, TimingWheel

log = logging.getLogger("shardq")

MAX_WAIT: Final = 1.0
"""Seconds. The waits of threads and event loops do not count the time for which the machine was suspended. So, while an
entry is pending, no wait is longer than this, and an entry that fell due meanwhile is late by this at most. A wait that
ends for nothing costs 10 µs.
"""

_GRAIN: Final = 1e-6  # of a tick: 1 ns of 1 ms. Rounding errors of sums of floats are smaller, and no clock is finer.
_FAILED: Final = "a callback of the timer failed"
_new = object.__new__  # takes half the time of a call of the class, which counts in `call_later`


def _refusal(delay: object) -> ConfigError:
    return ConfigError(f"a delay must be a finite number of seconds, not {shown(delay)}")


def _checked(entry: Any) -> Entry:
    """Return *entry* if it is one; else ConfigError. Each read inserts one, so this calls nothing."""
    if isinstance(entry, Entry):
        return entry
    raise ConfigError(f"entry must be a shardq.timing.Entry, not {shown(entry)}")


def _run(entry: Entry) -> None:
    try:
        entry.fire()
    except Exception:
        log.exception(_FAILED)


class Settings(TypedDict, total=False):
    """The settings of all timers; `Timer` explains them."""

    tick: float
    wheel_size: int
    clock: Clock
    execute: Callable[..., object]


class Timer:
    """A timer for those who call `run_due` themselves: tests, and loops that know when something is due.

    `tick`: seconds; no entry runs early, and on an idle machine none runs more than a tick late. `wheel_size`: buckets
    per wheel. `clock`: where the time comes from. `execute`: for callbacks that take long; it is called as
    `execute(function, entry)`, and can be the `submit` of a pool. By default callbacks run one after the other on the
    thread that calls `run_due`. Their errors are logged, and do not stop the timer.
    """

    _asleep = False
    """Whether nothing runs the entries yet, so that each new one must wake the timer."""

    def __init__(self, **settings: Unpack[Settings]) -> None:
        check_known(type(self).__name__, settings, Settings.__annotations__)
        tick = settings.get("tick", 0.001)
        if not isinstance(tick, int | float) or not 1e-6 <= tick <= 3600:
            raise ConfigError(f"tick must be from 0.000001 to 3,600 seconds, not {shown(tick)}")
        self.tick = float(tick)
        clock = settings.get("clock", SystemClock())
        check_clock(clock)
        self._monotonic = clock.monotonic
        self._execute: Callable[..., object] | None = settings.get("execute")
        if self._execute is not None:
            function("execute", self._execute)
        self._size = settings.get("wheel_size", DEFAULT_SIZE)
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._rate = 1 / self.tick
        self._zero = self._monotonic()  # tick 0; ticks that are small ints take less memory
        self._wheel = TimingWheel(self._size)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Callback:
        """Call `callback(*args)` in `delay` seconds, at once if that is not above 0. The entry can be cancelled."""
        function("callback", callback)
        entry = _new(Callback)
        entry.callback = callback
        entry.args = args
        try:  # this repeats `insert` and `_due`: to call them would take a fifth of the time of `call_later`
            now = self._monotonic() - self._zero
            due = ceil((now + delay) * self._rate - _GRAIN) if delay > 0 else self._due(now, delay)
        except Exception:  # noqa: BLE001 (of somebody else's object, which is no number)
            raise _refusal(delay) from None
        if self._wheel.insert(entry, due) or self._asleep:
            self._wake_for(entry)
        return entry

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Callback:
        """Call `callback(*args)` when the clock's `monotonic` is `when`, at once if that is past."""
        entry = Callback(function("callback", callback), args)
        self.insert_at(entry, when)
        return entry

    def insert(self, entry: Entry, delay: float) -> None:
        """Have `entry` fire in `delay` seconds. If it is pending, its former time is forgotten."""
        try:
            now = self._monotonic() - self._zero
            due = ceil((now + delay) * self._rate - _GRAIN) if delay > 0 else self._due(now, delay)
        except Exception:  # noqa: BLE001 (of somebody else's object, which is no number)
            raise _refusal(delay) from None
        if _checked(entry).bucket is not None:
            entry.leave()
        if self._wheel.insert(entry, due) or self._asleep:
            self._wake_for(entry)

    def insert_at(self, entry: Entry, when: float) -> None:
        """Have `entry`, which does not wait, fire when the clock's `monotonic` is `when`. This reads no clock."""
        try:
            due = ceil((when - self._zero) * self._rate - _GRAIN)
        except Exception:  # noqa: BLE001 (of somebody else's object, which is no number)
            raise _refusal(when) from None
        if self._wheel.insert(_checked(entry), due) or self._asleep:
            self._wake_for(entry)

    def _due(self, now: float, delay: float) -> int:
        return int(now * self._rate + _GRAIN) if delay <= 0 else ceil((now + delay) * self._rate - _GRAIN)

    def run_due(self) -> float | None:
        """Run the entries that are due, in order; return in how many seconds to call this again, None for never."""
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
        """Call `_wake`, since *entry* is due before all others. If that fails, take *entry* out again."""
        try:
            self._wake()
        except BaseException:
            entry.leave()
            raise

    def _wake(self) -> None:
        """Shorten the wait for the next entry that is due. A timer that does not wait has nothing to do."""

    def __len__(self) -> int:
        """How many entries are pending: neither run nor cancelled. The number is exact, whatever other threads do."""
        return len(self._wheel)

    def __bool__(self) -> bool:
        return True  # an idle timer is still a timer

    def close(self) -> list[Entry]:
        """Stop for good; return the entries that were pending, in order. They will not run."""
        self._closed = True
        return self._wheel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Alarm:
    """An event that a thread waits for, and that a finalizer may set: `set` takes no lock that its thread may hold."""

    def __init__(self) -> None:
        self._bells: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """End the wait that is under way, or the next one."""
        if self._bells.empty():
            self._bells.put(None)

    def clear(self) -> None:
        """Forget that it was set."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._bells.get_nowait()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it is set, for *seconds* at most."""
        with contextlib.suppress(queue.Empty):
            self._bells.get(timeout=seconds)


class ThreadTimer(Timer):
    """A timer with a daemon thread, which starts with the first entry and sleeps while nothing is due.

    Any thread may use it. The daemon thread does not keep the timer alive: when nothing else refers to it, the thread
    ends. In a forked child the timer is empty, since the parent runs the pending entries; it works there, with a thread
    of the child. `wait(alarm, seconds)` is for tests: how the thread waits.
    """

    def __init__(
        self, *, wait: Callable[[Alarm, float | None], object] = Alarm.wait, **settings: Unpack[Settings]
    ) -> None:
        self._wait = function("wait", wait)
        super().__init__(**settings)
        _timers.add(self)

    def _start(self) -> None:
        super()._start()
        self._thread: threading.Thread | None = None
        self._asleep = True
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
                self._thread, self._asleep = thread, False

    def close(self, *, wait: bool = True) -> list[Entry]:
        """Stop for good; return the entries that were pending, in order. They will not run.

        Waits for the callback that runs at this moment, unless that callback itself calls `close`, or *wait* is false.
        """
        flag("wait", wait)
        with self._starting:
            self._closed = True
        left = super().close()
        self._alarm.set()
        if wait and self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        return left


def _drive(gone: weakref.ref[ThreadTimer], alarm: Alarm, wait: Callable[[Alarm, float | None], object]) -> None:
    """The main function of a timer's thread. It refers to the timer only while it runs entries, so the timer can go."""
    while (timer := gone()) is not None and not timer._closed:
        alarm.clear()  # before `run_due`, so that no insert goes unnoticed
        try:
            pause = timer.run_due()
        except BaseException:  # a callback that wants to end its thread must not end everybody's timers
            log.exception(_FAILED)
            continue
        closed = timer._closed
        del timer
        if not closed:
            wait(alarm, None if pause is None else min(pause, MAX_WAIT))


_timers: weakref.WeakSet[ThreadTimer] = weakref.WeakSet()


def _after_fork() -> None:
    for timer in _timers:
        timer._start()


after_fork(_after_fork)
