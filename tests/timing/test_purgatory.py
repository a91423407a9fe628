"""The purgatory: what Kafka's tests of its own demand, races replayed, and many threads at once."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Hashable
from random import Random

import pytest

from shardq.errors import ClosedError, ConfigError
from shardq.testing import ManualClock
from shardq.timing import Operation, Purgatory, ThreadTimer, Timer
from tests.waiting import eventually


class Wait(Operation):
    """An operation that is ready when it is told so, and notes what happens to it."""

    def __init__(self, completable: bool = False) -> None:
        super().__init__()
        self.completable = completable
        self.tries = 0
        self.completed = 0
        self.expired = 0

    def ready(self) -> bool:
        self.tries += 1
        return self.completable

    def on_complete(self) -> None:
        self.completed += 1

    def on_expire(self) -> None:
        self.expired += 1

    @property
    def fate(self) -> tuple[int, int]:
        return self.completed, self.expired


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timer(clock: ManualClock) -> Timer:
    return Timer(clock=clock)


@pytest.fixture
def purgatory(timer: Timer) -> Purgatory:
    return Purgatory(timer)


def sizes(purgatory: Purgatory, timer: Timer) -> tuple[int, int, int]:
    return len(purgatory), purgatory.watched, len(timer)


def cancel_under(purgatory: Purgatory, key: Hashable) -> list[Operation]:
    """Take out all operations watched under *key*; return those that this call took out."""
    return [operation for operation in purgatory.watched_under(key) if operation.cancel()]


def test_an_event_completes_what_is_ready(purgatory: Purgatory, timer: Timer) -> None:
    """Nothing watched: 0. Not ready: 0. Ready: 1, once."""
    one, two = Wait(), Wait()
    assert purgatory.check("1") == 0
    assert not purgatory.watch(one, ["1"], 10)
    assert not purgatory.watch(two, ["2"], 10)
    assert (purgatory.check("1"), purgatory.check("2")) == (0, 0)
    one.completable = True
    assert (purgatory.check("1"), purgatory.check("1")) == (1, 0)
    two.completable = True
    assert (purgatory.check("2"), purgatory.check("2")) == (1, 0)
    assert (one.fate, two.fate) == ((1, 0), (1, 0))
    assert sizes(purgatory, timer) == (0, 0, 0)


def test_the_timeout_completes_what_is_not_ready(purgatory: Purgatory, timer: Timer, clock: ManualClock) -> None:
    """At 20 ms and not before; `on_expire` comes with `on_complete`; one of 200 s stays."""
    short, long, eternal = Wait(), Wait(), Wait()
    for operation, timeout in ((short, 0.02), (long, 200), (eternal, None)):
        purgatory.watch(operation, ["a", "b"], timeout)
    clock.advance(0.0199)
    timer.run_due()
    assert short.fate == (0, 0)
    clock.advance(0.0001)
    timer.run_due()

    assert (short.fate, long.fate, eternal.fate) == ((1, 1), (0, 0), (0, 0))
    assert sizes(purgatory, timer) == (2, 4, 1)


def test_nothing_is_kept_of_what_is_complete(purgatory: Purgatory, timer: Timer) -> None:
    """Kafka's case of keys {1}, {1, 2}, {1, 2, 3}: it counts 6 watched until a purge, here 1 are left at once."""
    operations = [Wait() for _ in range(3)]
    for number, operation in enumerate(operations, 1):
        purgatory.watch(operation, range(1, number + 1), 100)
    assert sizes(purgatory, timer) == (3, 6, 3)

    assert operations[1].complete()
    assert sizes(purgatory, timer) == (2, 4, 2)
    assert operations[2].complete()
    assert sizes(purgatory, timer) == (1, 1, 1)
    assert [purgatory.check(key) for key in (1, 2, 3)] == [0, 0, 0]


def test_trying_and_watching(purgatory: Purgatory, timer: Timer) -> None:
    """Ready on entry: one try, never watched, never in the timer. Not ready: a try before it is watched, one after."""
    at_once, later = Wait(completable=True), Wait()
    assert purgatory.watch(at_once, ["k"], 10)
    assert (at_once.tries, at_once.fate, sizes(purgatory, timer)) == (1, (1, 0), (0, 0, 0))
    watched = []

    def note() -> bool:
        watched.append(purgatory.watched)
        return False

    later.ready = note  # type: ignore[method-assign]
    assert not purgatory.watch(later, ["k", "l"], 10)
    assert watched == [0, 2]


def test_an_event_between_the_try_and_the_watching_is_not_lost(purgatory: Purgatory, timer: Timer) -> None:
    """The second try sees it, though the event itself found nobody to tell."""

    class Unlucky(Wait):
        def ready(self) -> bool:
            found = super().ready()
            self.completable = True  # the event comes when the first look is over
            assert purgatory.check("k") == 0
            return found

    operation = Unlucky()
    assert purgatory.watch(operation, ["k"], 10)
    assert (operation.tries, operation.fate, sizes(purgatory, timer)) == (2, (1, 0), (0, 0, 0))


@pytest.mark.parametrize("number", [1, 2])
def test_completed_by_force_in_the_middle_of_being_watched(purgatory: Purgatory, timer: Timer, number: int) -> None:
    """By somebody else during the first or the second try: it is in no list and not in the timer."""

    class Forced(Wait):
        def ready(self) -> bool:
            super().ready()
            if self.tries == number:
                self.complete()
            return False

    operation = Forced()
    assert purgatory.watch(operation, ["k", "l"], 10)
    assert (operation.fate, sizes(purgatory, timer)) == ((1, 0), (0, 0, 0))


def test_completed_just_before_it_came_into_the_timer(clock: ManualClock) -> None:
    """After its last try: the timer lets go of it at once."""

    class Slow(Timer):
        def insert(self, entry, delay):  # type: ignore[no-untyped-def]
            assert operation.complete()
            super().insert(entry, delay)

    timer = Slow(clock=clock)
    purgatory, operation = Purgatory(timer), Wait()

    assert purgatory.watch(operation, ["k"], 10)
    assert (operation.fate, sizes(purgatory, timer)) == ((1, 0), (0, 0, 0))


def test_cancelling_all_under_a_key(purgatory: Purgatory, timer: Timer, clock: ManualClock) -> None:
    """Takes out what is watched under the key, under its other keys too, and completes nothing."""
    one, two, other = Wait(), Wait(), Wait()
    for operation, keys in ((one, ["a"]), (two, ["a", "b"]), (other, ["b"])):
        purgatory.watch(operation, keys, 1)

    assert cancel_under(purgatory, "unknown") == []
    assert cancel_under(purgatory, "a") == [one, two]
    assert sizes(purgatory, timer) == (1, 1, 1)
    clock.advance(1)
    timer.run_due()
    assert (one.fate, two.fate, other.fate) == ((0, 0), (0, 0), (1, 1))
    assert not one.complete()


def test_cancel_and_force(purgatory: Purgatory, timer: Timer) -> None:
    """Each works once, for one caller, and only while somebody watches."""
    one, two = Wait(), Wait()
    assert not one.complete()
    assert not one.cancel()
    purgatory.watch(one, ["k"], 1)
    purgatory.watch(two, ["k"], 1)

    assert (one.cancel(), one.cancel(), one.complete()) == (True, False, False)
    assert (two.complete(), two.complete(), two.cancel()) == (True, False, False)
    assert (one.fate, two.fate, sizes(purgatory, timer)) == ((0, 0), (1, 0), (0, 0, 0))
    purgatory.watch(one, ["k"], 1)
    assert one.complete()


def test_an_operation_is_watched_once(purgatory: Purgatory, timer: Timer) -> None:
    operation = Wait()
    purgatory.watch(operation, ["k", "k"], 10)
    with pytest.raises(ConfigError, match="once at a time"):
        purgatory.watch(operation, ["l"], 10)
    assert sizes(purgatory, timer) == (1, 1, 1)


def test_the_longest_waiting_comes_first_and_a_limit_bounds_it(purgatory: Purgatory) -> None:
    """One event that serves one: the second stays, untried."""
    operations = [Wait() for _ in range(3)]
    for operation in operations:
        purgatory.watch(operation, ["k"], 10)
        operation.completable = True
    operations[0].completable = False

    assert purgatory.check("k", limit=1) == 1
    assert [operation.completed for operation in operations] == [0, 1, 0]
    assert operations[2].tries == 2
    assert (purgatory.check("k", limit=0), purgatory.check("k", limit=5)) == (0, 1)


def test_errors_of_one_operation_are_its_own(
    purgatory: Purgatory, timer: Timer, caplog: pytest.LogCaptureFixture
) -> None:
    """On entry they come out; in a check they are logged, and the others are tried."""

    class Broken(Wait):
        def ready(self) -> bool:
            if super().ready():
                raise OSError("broken")
            return False

    with pytest.raises(OSError, match="broken"):
        purgatory.watch(Broken(completable=True), ["k"], 10)
    assert sizes(purgatory, timer) == (0, 0, 0)
    broken, fine = Broken(), Wait()
    for operation in (broken, fine):
        purgatory.watch(operation, ["k"], 10)
        operation.completable = True
    with caplog.at_level(logging.ERROR, "shardq"):
        assert purgatory.check("k") == 1

    assert (broken.fate, fine.fate) == ((0, 0), (1, 0))
    assert "failed when it was tried" in caplog.text
    assert sizes(purgatory, timer) == (1, 1, 1)


def test_a_timer_that_is_closed_takes_no_operation(purgatory: Purgatory, timer: Timer) -> None:
    timer.close()
    with pytest.raises(ClosedError):
        purgatory.watch(Wait(), ["k"], 10)
    assert sizes(purgatory, timer) == (0, 0, 0)


def test_no_lock_is_held_while_an_operation_runs(purgatory: Purgatory, timer: Timer) -> None:
    """KAFKA-3994: completing one checks the key of the other, on two threads crosswise, with a lock of the user's."""
    users, both = threading.Lock(), threading.Barrier(2)

    class Crosswise(Wait):
        def __init__(self, other: str) -> None:
            super().__init__()
            self.other = other

        def on_complete(self) -> None:
            super().on_complete()
            both.wait(20)  # each is in its completion now
            with users:
                purgatory.check(self.other)
                purgatory.watch(Wait(), [self.other], 10)

    operations = {"a": Crosswise("b"), "b": Crosswise("a")}
    for key, operation in operations.items():
        purgatory.watch(operation, [key], 10)
        operation.completable = True
    threads = [threading.Thread(target=purgatory.check, args=(key,)) for key in operations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert [thread.is_alive() for thread in threads] == [False, False]
    assert [operation.fate for operation in operations.values()] == [(1, 0), (1, 0)]


@pytest.mark.parametrize("ready", [True, False])
def test_who_finds_it_busy_leaves_word(purgatory: Purgatory, ready: bool) -> None:
    """One thread is in the middle of a try when the event comes on another: neither waits, it is tried again."""
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Wait):
        def ready(self) -> bool:
            found = super().ready()
            if self.tries == 3:  # the first two are on entry
                inside.set()
                go_on.wait(20)
            return found

    operation = Slow()
    purgatory.watch(operation, ["k"], 100)
    thread = threading.Thread(target=purgatory.check, args=("k",))
    thread.start()
    inside.wait(20)
    operation.completable = ready
    assert purgatory.check("k") == 0
    go_on.set()
    thread.join(20)

    assert (operation.tries, operation.fate, thread.is_alive()) == (4, (ready, 0), False)


def test_who_finds_it_busy_no_longer_tries_itself(purgatory: Purgatory) -> None:
    """The other thread finished between our knock and our word, which it may not have seen."""

    class Finishing:
        calls = 0

        def acquire(self, blocking: bool = True) -> bool:
            self.calls += 1
            return self.calls > 1

        def locked(self) -> bool:
            return False

        def release(self) -> None:
            pass

    operation = Wait()
    purgatory.watch(operation, ["k"], 100)
    operation.completable = True
    operation._trying = Finishing()  # type: ignore[assignment]

    assert purgatory.check("k") == 1


def test_a_word_left_to_a_try_that_fails_counts(purgatory: Purgatory, caplog: pytest.LogCaptureFixture) -> None:
    """The thread whose try raised looks again on behalf of the one that came meanwhile."""

    class Fragile(Wait):
        def ready(self) -> bool:
            found = super().ready()
            if self.tries == 3:
                self.completable = True
                assert purgatory.check("k") == 0
                raise OSError
            return found

    operation = Fragile()
    purgatory.watch(operation, ["k"], 100)

    assert purgatory.check("k") == 1
    assert (operation.fate, caplog.text) == ((1, 0), "")


class Link(Operation):
    """One of a chain: what it completes is the next one, in a way that may be any."""

    def __init__(self, number: int, seen: list[int], onward: Callable[[int], object]) -> None:
        super().__init__()
        self.number, self.seen, self.onward = number, seen, onward

    def ready(self) -> bool:
        return 0 < self.number <= len(self.seen)

    def on_complete(self) -> None:
        self.seen.append(self.number)
        self.onward(self.number + 1)


@pytest.mark.parametrize("way", ["check", "complete", "watch", "timeout"])
def test_a_chain_of_completions_may_be_of_any_length(
    purgatory: Purgatory, timer: Timer, clock: ManualClock, way: str
) -> None:
    """Each is called when the one before has returned; that it is complete is known at once."""
    links: list[Link] = []
    seen: list[int] = []
    told: list[object] = []

    def onward(number: int) -> None:
        if number < len(links):
            match way:
                case "complete":
                    told.append(links[number].complete())
                case "watch":
                    told.append(purgatory.watch(links[number], [], None))
                case _:
                    told.append(purgatory.check(number))
            assert len(seen) == number

    links += [Link(number, seen, onward) for number in range(10_000)]
    for link in links if way != "watch" else links[:1]:
        assert not purgatory.watch(link, [link.number], 1 if link.number == 0 else None)
    if way == "timeout":
        clock.advance(1)
        timer.run_due()
    else:
        links[0].complete()
    assert seen == list(range(10_000))
    assert told == [True if way in ("complete", "watch") else 1] * 9999
    assert sizes(purgatory, timer) == (0, 0, 0)


def test_of_a_chain_each_error_is_its_own(
    purgatory: Purgatory, clock: ManualClock, timer: Timer, caplog: pytest.LogCaptureFixture
) -> None:
    """One that fails keeps none of the others from being told."""
    third = Wait()

    class Failing(Wait):
        def on_complete(self) -> None:
            super().on_complete()
            third.complete()
            raise ValueError("its own")

    second = Failing()

    class First(Wait):
        def on_complete(self) -> None:
            super().on_complete()
            assert second.complete()
            assert second.completed == 0
            raise KeyError("the first")

    first = First()
    for operation in (first, second, third):
        purgatory.watch(operation, ["k"], 10)
    with pytest.raises(KeyError, match="the first"):
        first.complete()
    assert [each.completed for each in (first, second, third)] == [1, 1, 1]
    assert "its own" in caplog.text
    assert sizes(purgatory, timer) == (0, 0, 0)
    last = Wait()
    purgatory.watch(last, ["k"], 1)
    assert last.complete()
    assert last.completed == 1


def test_an_operation_with_a_thousand_keys(purgatory: Purgatory, timer: Timer) -> None:
    """One event completes it and it is gone from all lists, with what it referred to."""

    class Payload:
        pass

    operation = Wait()
    operation.payload = payload = Payload()  # type: ignore[attr-defined]
    held = weakref.ref(payload)
    del payload
    purgatory.watch(operation, range(1000), 100)
    purgatory.watch(Wait(), [1], 100)
    assert sizes(purgatory, timer) == (2, 1001, 2)
    operation.completable = True
    gc.disable()
    try:
        assert purgatory.check(500) == 1
        del operation
        assert held() is None
    finally:
        gc.enable()
    assert sizes(purgatory, timer) == (1, 1, 1)
    assert list(purgatory._watchers) == [1]


# --- many threads ----------------------------------------------------------------------------------------------


def race(*works: Callable[[], object]) -> None:
    """Run all of `works` at once."""
    barrier = threading.Barrier(len(works))

    def start(work: Callable[[], object]) -> None:
        barrier.wait()
        work()

    threads = [threading.Thread(target=start, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("restless")
def test_no_wake_up_is_lost_among_many_checkers(purgatory: Purgatory, timer: Timer) -> None:
    """Kafka's 100 operations, each tried 20 times from 20 threads; only the last attempt makes it ready."""

    class Attempts(Wait):
        def __init__(self) -> None:
            super().__init__()
            self.left = 20
            self.count = threading.Lock()

        def attempt(self, key: int) -> None:
            with self.count:
                self.left -= 1
                self.completable = self.left == 0
            purgatory.check(key)

    operations = [Attempts() for _ in range(100)]
    for key, operation in enumerate(operations):
        purgatory.watch(operation, [key], 1000)

    def work(seed: int) -> None:
        order = list(enumerate(operations))
        Random(seed).shuffle(order)
        for key, operation in order:
            operation.attempt(key)

    race(*(lambda seed=seed: work(seed) for seed in range(20)))
    assert {operation.fate for operation in operations} == {(1, 0)}
    assert sizes(purgatory, timer) == (0, 0, 0)


@pytest.mark.usefixtures("restless")
def test_the_event_the_force_and_the_timeout_race() -> None:
    """Each operation completes once; `complete` says so to one caller; expired ones are those that nobody completed."""
    with ThreadTimer() as timer:
        purgatory = Purgatory(timer)
        operations = [Wait() for _ in range(600)]
        won: list[list[Wait]] = [[], [], []]
        for number, operation in enumerate(operations):
            purgatory.watch(operation, ["all", number], 0.03 + number % 30 / 1000)

        def force(place: int) -> None:
            won[place] += [operation for operation in operations if operation.complete()]

        def check() -> None:
            for number, operation in enumerate(operations):
                operation.completable = number % 3 > 0
                done = purgatory.check(number)
                won[2] += [operation] * done

        race(lambda: force(0), lambda: force(1), check)
        eventually(lambda: all(operation.completed for operation in operations))
        eventually(lambda: len(timer) == 0)

    assert {operation.completed for operation in operations} == {1}
    winners = [operation for each in won for operation in each]
    assert len(winners) == len(set(winners))
    assert [operation.expired for operation in operations] == [
        operation not in set(winners) for operation in operations
    ]
    assert sizes(purgatory, timer) == (0, 0, 0)


@pytest.mark.usefixtures("restless")
def test_watching_checking_and_cancelling_at_once(rng: Random) -> None:
    """Operations come and go under a few keys from 4 threads: every one has one fate, and nothing is left behind."""
    seeds = [rng.random() for _ in range(4)]
    with ThreadTimer() as timer:
        purgatory = Purgatory(timer)
        all_operations: list[list[Wait]] = [[] for _ in seeds]
        cancelled: list[list[Operation]] = [[] for _ in seeds]

        def work(place: int) -> None:
            random = Random(seeds[place])
            for _ in range(800):
                operation = Wait()
                all_operations[place].append(operation)
                purgatory.watch(operation, random.sample(range(6), 3), random.choice([0.002, 0.05, None]))
                operation.completable = random.random() < 0.5
                purgatory.check(random.randrange(6), random.choice([None, 1]))
                if random.random() < 0.05:
                    cancelled[place] += cancel_under(purgatory, random.randrange(6))

        race(*(lambda place=place: work(place) for place in range(4)))
        for key in range(6):
            cancelled[0] += cancel_under(purgatory, key)
        eventually(lambda: len(timer) == 0)

    gone = set().union(*cancelled)
    assert sizes(purgatory, timer) == (0, 0, 0)
    assert sum(map(len, cancelled)) == len(gone)
    for operation in (each for place in all_operations for each in place):
        assert operation.completed == (operation not in gone)
