"""Many threads at one timer while its clock runs: each entry runs or is cancelled, once, and the count is exact."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from shardq.timing import Callback, Entry, ThreadTimer, TimingWheel
from tests.timing.names import name, names
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("restless")


def together(work: Callable[[int], None], threads: int) -> None:
    """Run `work(number)` on many threads, which start at once; fail with what any of them raised."""
    barrier, errors = threading.Barrier(threads), []

    def start(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 (raised below)
            errors.append(error)

    started = [threading.Thread(target=start, args=(number,)) for number in range(threads)]
    for each in started:
        each.start()
    for each in started:
        each.join()
    if errors:
        raise errors[0]


def test_adders_and_cancellers_race_the_clock(rng: Random) -> None:
    """8 threads add and cancel while a ninth moves the clock over cascades: nothing is lost, doubled or miscounted."""
    wheel, stop, has_run = TimingWheel(4), threading.Event(), threading.Event()
    ran: Counter[int] = Counter()
    cancelled: list[list[int]] = [[] for _ in range(8)]
    each, seeds = 2000, [rng.random() for _ in range(8)]

    def clock() -> None:
        while not stop.is_set():
            for entry in wheel.advance(wheel.now + 1):
                assert entry.due <= wheel.now
                ran[name(entry)] += 1
                has_run.set()

    def work(number: int) -> None:
        random, mine = Random(seeds[number]), []
        for at in range(each):
            if at == each // 2:
                assert has_run.wait(60)  # on a busy machine the clock's thread may not have begun
            entry = Callback(print, (number * each + at,))
            wheel.insert(entry, wheel.now + random.randrange(-2, 90))
            mine.append(entry)
            if random.random() < 0.5:
                own = random.choice(mine)
                if own.cancel():
                    cancelled[number].append(1)

    driver = threading.Thread(target=clock)
    driver.start()
    together(work, 8)
    stop.set()
    driver.join()
    left = len(wheel)
    dropped = sum(map(len, cancelled))

    assert max(ran.values()) == 1
    assert left == 8 * each - len(ran) - dropped
    assert len(list(wheel.advance(wheel.now + 10_000))) == left
    assert (len(wheel), wheel.next_expiration()) == (0, None)


def cancel_all(start: threading.Barrier, entries: list[Callback], won: list[int]) -> None:
    start.wait()
    won += [at for at, entry in enumerate(entries) if entry.cancel()]


def test_a_cancel_and_the_clock_never_both_win() -> None:
    """Four threads cancel the same entries just when they cascade and fall due: one winner for each."""
    rounds, per_round = 60, 50
    for _ in range(rounds):
        wheel, start = TimingWheel(3), threading.Barrier(5)
        entries = [Callback(print, (number,)) for number in range(per_round)]
        for number, entry in enumerate(entries):
            wheel.insert(entry, 27 + number % 5)
        winners: Counter[int] = Counter()
        wins: list[list[int]] = [[] for _ in range(5)]

        threads = [threading.Thread(target=cancel_all, args=(start, entries, wins[number])) for number in range(4)]
        for thread in threads:
            thread.start()
        start.wait()
        for now in range(40):
            wins[4] += names(wheel.advance(now))
        for thread in threads:
            thread.join()
        for won in wins:
            winners.update(won)

        assert winners == dict.fromkeys(range(per_round), 1)
        assert len(wheel) == 0


def test_the_count_is_exact_at_any_moment() -> None:
    """While each of 4 threads holds between 99 and 100 entries, nobody ever counts fewer or more, cascades or not."""
    wheel, stop = TimingWheel(4), threading.Event()
    counts: list[int] = []

    def work(number: int) -> None:
        if number == 0:
            counts.extend(len(wheel) for _ in range(3000))
            stop.set()
        elif number == 1:
            while not stop.is_set():
                list(wheel.advance(wheel.now + 1))
        else:
            entries = [Callback(print) for _ in range(100)]
            for entry in entries:
                wheel.insert(entry, 10**9)
            ready.wait()
            while not stop.is_set():
                for entry in entries:
                    assert entry.leave()
                    wheel.insert(entry, 10**9 + wheel.now)

    ready = threading.Barrier(4)

    def begin(number: int) -> None:
        if number < 2:
            ready.wait()
        work(number)

    together(begin, 4)
    assert {198, 199, 200} >= set(counts)


def test_a_thread_timer_under_load() -> None:
    """Real time, 6 threads, short delays, callbacks that cancel and add: as many ends as beginnings."""
    ends: Counter[str] = Counter()
    lock = threading.Lock()
    added = [0] * 6

    def end(how: str) -> None:
        with lock:
            ends[how] += 1

    def cancel(entry: Entry) -> None:
        if entry.cancel():
            end("cancelled")

    with ThreadTimer(wheel_size=8) as timer:

        def work(number: int) -> None:
            random = Random(number)
            for at in range(1500):
                entry = timer.call_later(random.random() * 0.05, end, "ran")
                added[number] += 1
                if at % 3 == 0 and entry.cancel():
                    end("cancelled")
                if at % 100 == 0:
                    timer.call_later(0, cancel, entry)

        together(work, 6)
        eventually(lambda: len(timer) == 0)
        eventually(lambda: ends.total() == sum(added))


def test_closing_while_others_add() -> None:
    """Each entry is run, returned by close, or refused with an error: never forgotten."""
    for _ in range(20):
        timer, fates = ThreadTimer(), [Counter[str]() for _ in range(3)]
        ran: list[int] = []

        def work(
            number: int, timer: ThreadTimer = timer, fates: list[Counter[str]] = fates, ran: list[int] = ran
        ) -> None:
            if number == 0:
                fates[0]["left"] = len(timer.close())
                return
            for _ in range(200):
                try:
                    timer.call_later(0.001, ran.append, 1)
                    fates[number]["added"] += 1
                except Exception:  # noqa: BLE001 (ClosedError, from one moment on)
                    fates[number]["refused"] += 1

        together(work, 3)
        total = sum(fates, Counter())
        assert total["added"] == len(ran) + total["left"]
        assert total["added"] + total["refused"] == 400
