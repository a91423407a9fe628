"""The timer: moved by hand with a clock that stands still, by a thread, and by an event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from shardq.clock import SystemClock
from shardq.errors import ClosedError, ConfigError
from shardq.testing import ManualClock
from shardq.timing import Callback, Entry, LoopTimer, ThreadTimer, Timer
from shardq.timing.timer import MAX_WAIT, Alarm
from tests.timing.names import names
from tests.waiting import eventually


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timer(clock: ManualClock) -> Timer:
    return Timer(clock=clock)


def passes(timer: Timer, clock: ManualClock, seconds: float, step: float = 0.001) -> None:
    """Let time pass in small steps, looking at each."""
    for _ in range(round(seconds / step)):
        clock.advance(step)
        timer.run_due()


# --- by hand ---------------------------------------------------------------------------------------------------


def test_a_callback_runs_when_its_delay_is_over(timer: Timer, clock: ManualClock) -> None:
    """Not before, at the first look after, and once."""
    seen: list[Any] = []
    timer.call_later(0.5, seen.append, "x")
    clock.advance(0.499)

    assert timer.run_due() == pytest.approx(0.001)
    assert seen == []
    clock.advance(0.001)
    assert timer.run_due() is None
    assert seen == ["x"]
    clock.advance(100)
    timer.run_due()
    assert seen == ["x"]


def test_the_pause_is_until_something_happens(timer: Timer, clock: ManualClock) -> None:
    """`run_due` says how long nobody has to look; the whole wait takes a look or two per wheel."""
    seen: list[float] = []
    timer.call_later(1000, lambda: seen.append(clock.monotonic()))
    looks = 0
    while (pause := timer.run_due()) is not None:
        clock.advance(pause)
        looks += 1

    assert seen == [pytest.approx(1000)]
    assert looks <= 4


def test_a_delay_that_is_not_above_zero_runs_at_the_next_look(timer: Timer) -> None:
    """With no time passing; a callback that adds another one does not keep the clock for itself."""
    seen: list[int] = []

    def again(number: int) -> None:
        seen.append(number)
        timer.call_later(0, again, number + 1)

    timer.call_later(-5, again, 0)
    assert [timer.run_due(), timer.run_due()] == [0, 0]
    assert seen == [0, 1]


def test_call_at_takes_the_clocks_time(timer: Timer, clock: ManualClock) -> None:
    clock.advance(10)
    seen: list[str] = []
    timer.call_at(9.0, seen.append, "past")
    timer.call_at(12.5, seen.append, "future")

    timer.run_due()
    assert seen == ["past"]
    clock.advance(2.5)
    timer.run_due()
    assert seen == ["past", "future"]


@pytest.mark.parametrize("start", [0.0, 0.1, 1234.5678, 1e7 / 3])
@pytest.mark.parametrize("delay", [0.1, 0.2, 0.3, 0.7, 1.1, 30.0, 30.1])
def test_whole_ticks_are_met_whatever_floats_make_of_them(start: float, delay: float) -> None:
    """Advancing by just the delay is enough, in one step; a microsecond less is not."""
    clock = ManualClock()
    clock.advance(start)
    timer = Timer(clock=clock)
    seen: list[int] = []
    timer.call_later(delay, seen.append, 1)
    clock.advance(delay - 1e-6)
    timer.run_due()
    assert seen == []
    clock.advance(1e-6)
    timer.run_due()
    assert seen == [1]


def test_an_entry_inserted_again_replaces_itself(timer: Timer, clock: ManualClock) -> None:
    """Whether it is pending or has run, it runs at the new time only, with its callback."""
    seen: list[float] = []
    entry = Callback(lambda: seen.append(clock.monotonic()))
    timer.insert(entry, 1)
    timer.insert(entry, 3)
    assert len(timer) == 1
    passes(timer, clock, 4, 0.5)
    timer.insert(entry, 1)
    passes(timer, clock, 2, 0.5)

    assert seen == [3, 5]


def test_an_entry_that_is_to_be_put_off_by_nonsense_stays(timer: Timer, clock: ManualClock) -> None:
    seen: list[int] = []
    entry = timer.call_later(1, seen.append, 1)
    with pytest.raises(ConfigError):
        timer.insert(entry, float("nan"))
    assert entry.pending
    clock.advance(1)
    timer.run_due()
    assert seen == [1]


def test_a_callback_may_schedule_itself_across_turns(timer: Timer, clock: ManualClock) -> None:
    """32 times 100 ms: each exactly 100 ms after the one before."""
    seen: list[float] = []

    def again() -> None:
        seen.append(clock.monotonic())
        if len(seen) < 32:
            timer.call_later(0.1, again)

    timer.call_later(0.1, again)
    passes(timer, clock, 3.5)
    assert seen == [pytest.approx(0.1 * each) for each in range(1, 33)]


@pytest.mark.parametrize("delay", [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0])
def test_a_delay_is_kept_to_the_tick(delay: float) -> None:
    """The rising delays of RussellLuo's suite: never early, at most a tick late."""
    clock = ManualClock()
    clock.advance(0.00037)
    timer, seen = Timer(clock=clock), []
    clock.advance(0.00021)
    asked = clock.monotonic()
    timer.call_later(delay, lambda: seen.append(clock.monotonic() - asked))
    passes(timer, clock, delay + 0.002, 0.0001)

    assert len(seen) == 1
    assert delay - 1e-9 <= seen[0] <= delay + 0.0011


def test_callbacks_may_cancel(timer: Timer, clock: ManualClock) -> None:
    """Themselves to no effect, their neighbours and later ones with effect; all without a deadlock."""
    seen: list[Any] = []
    entries: list[Entry] = []

    def first() -> None:
        seen.append([entry.cancel() for entry in entries])

    entries += [timer.call_later(1, first), timer.call_later(1, seen.append, "neighbour")]
    entries.append(timer.call_later(2, seen.append, "later"))
    passes(timer, clock, 3, 1)

    assert seen == [[False, True, True]]
    assert len(timer) == 0


def test_a_callback_that_raises_is_logged_and_the_clock_goes_on(
    timer: Timer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    timer.call_later(1, lambda: 1 / 0)
    timer.call_later(1, seen.append, "after")
    clock.advance(1)
    with caplog.at_level(logging.ERROR, "shardq"):
        timer.run_due()

    assert seen == ["after"]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_callbacks_can_run_on_an_executor(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """The clock hands them on; an executor that takes no more is logged, and the clock goes on."""
    threads: list[str] = []
    with ThreadPoolExecutor(1, thread_name_prefix="own") as pool:
        timer = Timer(clock=clock, execute=pool.submit)
        timer.call_later(1, lambda: threads.append(threading.current_thread().name))
        timer.call_later(1, lambda: 1 / 0)
        clock.advance(1)
        timer.run_due()
    timer.call_later(1, threads.append, "never")
    clock.advance(1)
    timer.run_due()

    assert threads == ["own_0"]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError, RuntimeError]


def test_close_returns_what_was_pending(timer: Timer, clock: ManualClock) -> None:
    """In order, uncalled; then nothing can be added, and closing again returns nothing."""
    seen: list[int] = []
    for delay in (3, 1, 2):
        timer.call_later(delay, seen.append, delay)
    clock.advance(1)
    timer.run_due()
    left = timer.close()

    assert names(left) == [2, 3]
    assert not any(entry.pending for entry in left)
    with pytest.raises(ClosedError):
        timer.call_later(1, seen.append, 4)
    clock.advance(10)
    timer.run_due()
    assert (seen, timer.close(), len(timer)) == ([1], [], 0)


def test_close_from_a_callback_stops_the_others(timer: Timer, clock: ManualClock) -> None:
    seen: list[Any] = []
    timer.call_later(1, lambda: seen.extend(timer.close()))
    rest = [timer.call_later(1, seen.append, "neighbour"), timer.call_later(2, seen.append, "later")]
    passes(timer, clock, 3, 1)

    assert seen == rest


def test_a_far_deadline_does_not_overflow(timer: Timer) -> None:
    entry = timer.call_later(9.2e15, print)

    assert timer.run_due() is not None
    assert entry.cancel()
    assert timer.run_due() is None


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), "1", None])
def test_a_delay_is_a_finite_number(timer: Timer, delay: Any) -> None:
    with pytest.raises(ConfigError, match="finite number"):
        timer.call_later(delay, print)
    assert len(timer) == 0


@pytest.mark.parametrize("tick", [0, -1, float("nan"), 1e-9, 1e9, "1"])
def test_a_tick_has_a_sensible_length(tick: Any) -> None:
    with pytest.raises(ConfigError, match="tick"):
        Timer(tick=tick)


# --- a thread --------------------------------------------------------------------------------------------------


class Waits:
    """A wait for tests: notes what the thread waits for, and waits until it is let go or woken."""

    def __init__(self) -> None:
        self.seconds: list[float | None] = []
        self.events: list[Alarm] = []

    def __call__(self, event: Alarm, seconds: float | None) -> None:
        self.events.append(event)
        self.seconds.append(seconds)
        event.wait()

    def let_go(self) -> None:
        self.events[-1].set()


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def threaded(clock: ManualClock, waits: Waits) -> Iterator[ThreadTimer]:
    with ThreadTimer(clock=clock, wait=waits) as timer:
        yield timer


def test_the_thread_starts_with_the_first_entry(threaded: ThreadTimer, waits: Waits) -> None:
    """A daemon, one for all entries; a timer that nobody uses has none."""

    def own() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name == "shardq-timer"]

    before = own()
    assert threaded._thread is None
    threaded.call_later(1, print)
    threaded.call_later(2, print)

    (thread,) = set(own()) - set(before)
    assert thread.daemon


def test_an_idle_timer_never_wakes(threaded: ThreadTimer, waits: Waits, clock: ManualClock) -> None:
    """With nothing pending it waits without an end; a later entry does not wake it, an earlier one does."""
    ran = threading.Event()
    entry = threaded.call_later(0.9, print)
    eventually(lambda: waits.seconds == [pytest.approx(0.768, abs=0.2)], what="the first wait")
    threaded.call_later(50, ran.set).cancel()
    assert len(waits.seconds) == 1
    entry.cancel()
    waits.let_go()
    eventually(lambda: len(waits.seconds) == 2)
    assert waits.seconds[1] is None
    threaded.call_later(0.001, ran.set)
    eventually(lambda: len(waits.seconds) == 3)
    clock.advance(0.001)
    waits.let_go()
    assert ran.wait(10)
    eventually(lambda: len(waits.seconds) == 4)
    assert waits.seconds[3] is None


def test_a_long_wait_comes_in_pieces(threaded: ThreadTimer, waits: Waits) -> None:
    """What the system waits with does not count the time that the machine slept, and overflows."""
    threaded.call_later(1e15, print)
    eventually(lambda: waits.seconds == [MAX_WAIT])


@pytest.mark.parametrize("pending", [False, True])
def test_the_thread_of_a_timer_that_nobody_has_any_more_ends(pending: bool) -> None:
    """Whether it waits for a deadline or for ever. What was pending does not run."""
    seen: list[int] = []
    ran, timer = threading.Event(), ThreadTimer()
    timer.call_later(0, ran.set)
    assert ran.wait(30)
    if pending:
        timer.call_later(3600, seen.append, 1)
    thread, gone = timer._thread, weakref.ref(timer)
    assert thread
    del timer
    eventually(lambda: gc.collect() is not None and gone() is None)  # its thread may have it for a moment
    thread.join(30)
    assert not thread.is_alive()
    assert seen == []


def test_hundreds_of_timers_that_are_dropped_leave_no_thread() -> None:
    def own() -> set[threading.Thread]:
        return {each for each in threading.enumerate() if each.name == "shardq-timer"}

    before = own()
    for _ in range(300):
        ThreadTimer().call_later(60, print)
    gc.collect()
    eventually(lambda: own() <= before)


@pytest.mark.parametrize("late", [0, 0.005])
def test_an_entry_whose_thread_cannot_start_is_not_inserted(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock, late: float
) -> None:
    """And a later one starts it, also one that comes into a bucket that is there."""
    ran = threading.Event()
    with ThreadTimer(clock=clock) as timer:
        clock.advance(late)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            for _ in range(2):
                with pytest.raises(RuntimeError, match="no more threads"):
                    timer.call_later(0, print)
        assert len(timer) == 0
        timer.call_later(0, ran.set)
        assert ran.wait(30)


def refuse(*_: object) -> None:
    raise RuntimeError("no more threads")


def test_a_callback_that_ends_its_thread_does_not(
    threaded: ThreadTimer, waits: Waits, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """SystemExit is logged like any other error, and the neighbour runs."""
    ran = threading.Event()

    def leave() -> None:
        raise SystemExit

    threaded.call_later(1, leave)
    threaded.call_later(1, ran.set)
    eventually(lambda: waits.seconds)
    clock.advance(1)
    waits.let_go()

    assert ran.wait(10)
    assert "failed" in caplog.text


def test_close_wakes_the_thread_and_waits_for_it(clock: ManualClock, waits: Waits) -> None:
    timer = ThreadTimer(clock=clock, wait=waits)
    entry = timer.call_later(5, print)
    eventually(lambda: waits.seconds)
    thread = timer._thread

    assert timer.close() == [entry]
    assert thread is not None
    assert not thread.is_alive()
    assert timer.close() == []
    with pytest.raises(ClosedError):
        timer.call_later(1, print)


def test_close_from_a_callback_does_not_wait_for_itself() -> None:
    timer, done = ThreadTimer(), threading.Event()

    def close() -> None:
        timer.close()
        done.set()

    timer.call_later(0.001, close)

    assert done.wait(10)
    thread = timer._thread
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()


def test_closing_a_timer_that_never_ran() -> None:
    assert ThreadTimer().close() == []


def test_on_the_real_clock_nothing_is_early_and_everything_comes() -> None:
    """RussellLuo's delays, all at once, and in the order of their deadlines."""
    clock, delays = SystemClock(), [0.001, 0.005, 0.01, 0.05, 0.1, 0.5]
    seen: list[tuple[float, float]] = []
    with ThreadTimer() as timer:
        for delay in reversed(delays):
            due = clock.monotonic() + delay
            timer.call_later(delay, lambda due=due: seen.append((due, clock.monotonic())))
        eventually(lambda: len(seen) == len(delays))

    assert in_order(due for due, _ in seen)
    assert [(due, ran) for due, ran in seen if ran < due] == []


# --- an event loop ---------------------------------------------------------------------------------------------


class CountingLoop:
    """Counts the handles that a timer takes from its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.handles: list[asyncio.TimerHandle] = []

    def call_later(self, delay: float, callback: Callable[[], object], /) -> asyncio.TimerHandle:
        self.handles.append(self.loop.call_later(delay, callback))
        return self.handles[-1]

    @property
    def live(self) -> int:
        now = self.loop.time()
        return sum(not handle.cancelled() and handle.when() > now for handle in self.handles)


async def test_a_loop_timer_has_one_handle_for_all() -> None:
    """Of any number of entries; a new one only if it is earlier, none when there is nothing to wait for."""
    loop = CountingLoop(asyncio.get_running_loop())
    timer = LoopTimer(loop)
    assert loop.handles == []
    entries = [timer.call_later(delay, print) for delay in range(100, 2000)]
    assert len(loop.handles) == 1
    entries.append(timer.call_later(50, print))
    assert (len(loop.handles), loop.live) == (2, 1)
    for entry in entries:
        entry.cancel()

    assert len(timer) == 0
    assert timer.close() == []
    assert loop.live == 0


def in_order(dues: Iterable[float]) -> bool:
    """Whether none of the deadlines came before one that is more than a tick, and what asking took, earlier."""
    return all(after > before - 0.005 for before, after in pairwise(dues))


async def test_a_loop_timer_keeps_the_order_and_is_never_early() -> None:
    """Callbacks run on the loop; those that add others cost one handle for all of them."""
    clock, seen, done = SystemClock(), [], asyncio.Event()
    loop = CountingLoop(asyncio.get_running_loop())
    timer = LoopTimer(loop)

    def add(delay: float, first: bool = True) -> None:
        timer.call_later(delay, note, delay, first, clock.monotonic() + delay)

    def note(delay: float, first: bool, due: float) -> None:
        seen.append((first, due, clock.monotonic()))
        if delay == 0.002:
            for more in range(100):
                add(0.05 - more / 10_000, first=False)
            timer.call_later(0.2, done.set)

    for delay in (0.03, 0.002, 0.0):
        add(delay)
    await asyncio.wait_for(done.wait(), 30)

    assert in_order(due for first, due, _ in seen if first)
    assert [(due, ran) for _, due, ran in seen if ran < due] == []
    assert len(seen) == 103
    assert len(loop.handles) < 30
    assert loop.live == 0


async def test_an_idle_loop_timer_never_wakes() -> None:
    """After everything was cancelled the handle rings once at most, and is not renewed."""
    loop = CountingLoop(asyncio.get_running_loop())
    timer = LoopTimer(loop)
    for _ in range(1000):
        timer.call_later(0.02, print).cancel()
    handles = len(loop.handles)
    rang = asyncio.Event()
    loop.loop.call_later(0.1, rang.set)
    await rang.wait()

    assert handles == len(loop.handles) == 1


class SleepyLoop:
    """Rings when it is told to: its own time does not go on while the machine sleeps."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.callbacks: list[Callable[[], object]] = []

    def call_later(self, delay: float, callback: Callable[[], object], /) -> asyncio.Handle:
        self.delays.append(delay)
        self.callbacks.append(callback)
        return asyncio.Handle(callback, (), asyncio.get_running_loop())


async def test_a_loop_timer_is_a_second_late_at_most_after_the_machine_slept(clock: ManualClock) -> None:
    seen: list[ManualClock] = []
    loop = SleepyLoop()
    timer = LoopTimer(loop, clock=clock)
    timer.call_later(30, seen.append, clock)
    assert loop.delays == [MAX_WAIT]
    clock.advance(1)
    loop.callbacks[-1]()
    assert (seen, loop.delays) == ([], [MAX_WAIT] * 2)
    clock.advance(3600)
    loop.callbacks[-1]()
    assert seen == [clock]
    assert len(loop.delays) == 2  # nothing is pending: no handle
    assert MAX_WAIT <= 1


def test_on_a_closed_loop_nothing_is_inserted() -> None:
    loop = asyncio.new_event_loop()
    timer = LoopTimer(loop)
    loop.close()
    entry = Callback(print)
    for act in (lambda: timer.call_later(1, print), lambda: timer.insert(entry, 0)):
        with pytest.raises(RuntimeError, match="closed"):
            act()
    assert len(timer) == 0
    assert not entry.pending
    assert timer.close() == []


async def test_a_closed_loop_timer_runs_nothing() -> None:
    seen: list[int] = []
    timer = LoopTimer(asyncio.get_running_loop())
    timer.call_later(0, seen.append, 1)
    left = timer.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert (len(left), seen) == (1, [])
    with pytest.raises(ClosedError):
        timer.call_later(1, seen.append, 2)


async def test_closing_from_a_callback_leaves_no_handle() -> None:
    loop, done = CountingLoop(asyncio.get_running_loop()), asyncio.Event()
    timer = LoopTimer(loop)

    def close() -> None:
        timer.close()
        done.set()

    timer.call_later(100, print)
    timer.call_later(0, close)
    await asyncio.wait_for(done.wait(), 10)
    await asyncio.sleep(0)

    assert loop.live == 0
