"""The table of blocked threads: what a wait costs that ends by its own time, by the kernel's timeout or by the wheel.

It is why blocked reads of threads, and callers who wait for a shared call, are not in the wheel.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from statistics import median

from benchmarks.report import Table, Target, times
from benchmarks.timers.process import in_process
from benchmarks.timers.rounds import Rounds, Size, middle, place, ratio, rounds_of
from shardq.timing import ThreadTimer

OWN, WHEEL = "timeout of its own", "in the wheel"
WAITS = {"1 thread, 20 ms": (1, 0.02), "64 threads, 0.1 s": (64, 0.1)}
ANSWERED = "1 thread, answered at once"


class Waits:
    """Threads that wait again and again, each for *seconds*."""

    def __init__(self, how: str, seconds: float) -> None:
        self.timer = ThreadTimer() if how == WHEEL else None
        self.seconds = seconds
        self.late: list[float] = []
        self.ended = threading.Event()

    def wait(self, event: threading.Event) -> None:
        """Wait until *event* is set or the time is up."""
        if self.timer is None:
            event.wait(self.seconds)
            return
        entry = self.timer.call_later(self.seconds, event.set)
        event.wait()
        entry.cancel()

    def time_out(self) -> None:
        """Wait in vain."""
        event = threading.Event()
        while True:  # once at least, however late this thread begins
            due = time.monotonic() + self.seconds
            self.wait(event)
            self.late.append(time.monotonic() - due)
            event.clear()
            if self.ended.is_set():
                return

    def get_answers(self) -> None:
        """Wait for another thread, which answers at once."""
        event, asked = threading.Event(), threading.Event()

        def answer() -> None:
            while asked.wait() and not self.ended.is_set():
                asked.clear()
                event.set()

        answering = threading.Thread(target=answer)
        answering.start()
        while True:
            begun = time.monotonic()
            asked.set()
            self.wait(event)
            self.late.append(time.monotonic() - begun)
            event.clear()
            if self.ended.is_set():
                break
        asked.set()
        answering.join()


def measure(how: str, what: str, seconds: str) -> dict[str, float]:
    """Wait for *seconds*: µs of CPU and thread switches of a wait, and how many ms after its end it went on."""
    number, each = WAITS.get(what, (1, 1.0))
    waits = Waits(how, each)
    work: Callable[[], None] = waits.get_answers if what == ANSWERED else waits.time_out
    threads = [threading.Thread(target=work) for _ in range(number)]
    cpu, switches = _spent()
    for thread in threads:
        thread.start()
    time.sleep(float(seconds))
    waits.ended.set()
    for thread in threads:
        thread.join()
    after, more = _spent()
    if waits.timer is not None:
        waits.timer.close()
    count = len(waits.late)
    return {"us": (after - cpu) / count * 1e6, "switches": (more - switches) / count, "late": median(waits.late) * 1e3}


def _spent() -> tuple[float, int]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_nvcsw


def blocked(size: Size) -> list[Table]:
    """B1: what the wheel would cost threads that wait."""
    found: dict[str, Rounds] = {}
    for what in (*WAITS, ANSWERED):

        def one(how: str, what: str = what) -> dict[str, float]:
            return in_process("benchmarks.timers.blocked", how, what, size.seconds)

        found[what] = rounds_of(size.rounds, (OWN, WHEEL), one)
    shown: list[tuple[str, ...]] = [
        (f"{what}, {how}", f"{middle(each, 'us', how):.0f} µs", f"{middle(each, 'switches', how):.1f}",
         f"{middle(each, 'late', how):.2f} ms", times(1 / ratio(each, "us", how, OWN)))
        for what, each in found.items() for how in (OWN, WHEEL)
    ]  # fmt: skip
    columns = ("waits", "CPU of one", "switches", "it goes on after", "CPU / own")
    alone = next(iter(found.values()))
    targets = [
        Target("B1 the wheel's CPU for a wait that times out, against one's own", ratio(alone, "us", OWN, WHEEL), 1.2)
    ]
    context = f"{size.rounds} rounds of {size.seconds:g} s; {place()}"
    return [Table("timing-blocked", "Threads that wait", context, columns, shown, targets, found)]
