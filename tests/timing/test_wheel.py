"""The timing wheel against a heap, against its own worked example, and at its edges: no thread, no clock."""

from __future__ import annotations

import gc
import heapq
import weakref
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardq.errors import ClosedError, ConfigError
from shardq.timing import Bucket, Callback, Entry, TimingWheel
from shardq.timing.buckets import CLOSED
from tests.timing.names import name, names


def entry(name: object = None) -> Callback:
    return Callback(lambda: None, (name,))


def fill(wheel: TimingWheel, dues: dict[str, int]) -> dict[str, Callback]:
    entries = {each: entry(each) for each in dues}
    for each, due in dues.items():
        wheel.insert(entries[each], due)
    return entries


def test_the_worked_example_is_true() -> None:
    """The steps and the order that the module's docstring draws."""
    wheel = TimingWheel(3)
    fill(wheel, {"a": 2, "b": 4, "c": 5, "d": 5, "e": 16})
    seen = []
    while (tick := wheel.next_expiration()) is not None:
        seen.append((tick, "".join(map(str, names(wheel.advance(tick))))))

    assert seen == [(2, "a"), (3, ""), (4, "b"), (5, "cd"), (9, ""), (15, ""), (16, "e")]


def test_each_entry_runs_once_over_several_wheels() -> None:
    """Kafka's mix with tick 1 and wheel 3: 0 to 4 once, 10 to 99 twice, 100 to 499 once, added in one go."""
    wheel = TimingWheel(3)
    dues = [*range(5), *range(10, 100), *range(10, 100), *range(100, 500)]
    for due in dues:
        wheel.insert(entry(due), due)

    assert len(wheel) == len(dues)
    assert names(wheel.advance(499)) == sorted(dues)
    assert len(wheel) == 0


def test_what_is_due_already_is_handed_over_at_once() -> None:
    """Due now or before: in the order of insertion, without the clock moving, and counted until then."""
    wheel = TimingWheel(8, now=100)

    assert [wheel.insert(entry(due), due) for due in (99, 95, 100, -3)] == [True] * 4
    assert (wheel.next_expiration(), len(wheel)) == (100, 4)
    assert names(wheel.advance(100)) == [99, 95, 100, -3]
    assert wheel.next_expiration() is None


def test_nothing_is_early() -> None:
    """At each tick exactly what is due at it comes, whatever the wheel it waited in."""
    wheel = TimingWheel(4)
    dues = [*range(1, 70), 255, 256, 257, 1023, 1024, 1025]
    for due in dues:
        wheel.insert(entry(due), due)

    assert [due for now in range(1, 1026) for due in names(wheel.advance(now)) if due != now] == []
    assert len(wheel) == 0


@pytest.mark.parametrize("size", [2, 3, 64])
def test_the_levels_meet_at_every_power_of_the_size(size: int) -> None:
    """Around each power of the size, one tick more or less, from a start within a turn."""
    for start in (0, 1, size - 1, size, size**2 + 1):
        wheel = TimingWheel(size, now=start)
        dues = sorted({start + size**level + by for level in range(1, 6) for by in (-1, 0, 1)} - {start})
        for due in dues:
            wheel.insert(entry(due), due)
        found = []
        while (tick := wheel.next_expiration()) is not None:
            found += [(due, tick) for due in names(wheel.advance(tick))]

        assert found == [(due, due) for due in dues]


def test_overflow_wheels_are_made_on_demand() -> None:
    """One wheel to begin with, another for each power of the size that a deadline goes beyond."""
    wheel = TimingWheel(10)
    seen = []
    for due in (9, 10, 99, 100, 12_345):
        wheel.insert(entry(), due)
        seen.append(len(wheel._wheels))

    assert seen == [1, 2, 2, 3, 5]


def test_a_deadline_beyond_all_time_does_not_overflow() -> None:
    """2 ** 80 ticks: more wheels, not an error; and cancelled it is gone."""
    wheel = TimingWheel()
    far = entry()
    wheel.insert(far, 2**80)

    assert list(wheel.advance(2**70)) == []
    assert far.cancel()
    assert wheel.next_expiration() is None


def test_entries_of_one_tick_run_in_the_order_of_their_insertion() -> None:
    """Also when the early ones waited in an overflow wheel and the late ones went to a low one directly."""
    wheel = TimingWheel(4)
    for now in range(100):
        list(wheel.advance(now))
        wheel.insert(entry(now), 100)

    assert names(wheel.advance(100)) == list(range(100))


def test_a_jump_of_the_clock_hands_everything_over_in_order() -> None:
    """A clock that was away for long: what fell due meanwhile comes once, by its due tick."""
    wheel, random = TimingWheel(5), Random(3)
    dues = [random.randrange(1, 3000) for _ in range(500)]
    for due in dues:
        wheel.insert(entry(due), due)

    assert names(wheel.advance(10_000)) == sorted(dues)
    assert list(wheel.advance(20_000)) == []


def test_time_does_not_go_back() -> None:
    """An earlier `now` changes nothing."""
    wheel = TimingWheel(4)
    wheel.insert(entry("x"), 50)
    list(wheel.advance(40))

    assert list(wheel.advance(3)) == []
    assert wheel.now == 40
    assert names(wheel.advance(50)) == ["x"]


def test_cancel_says_who_was_first() -> None:
    """True once before it ran; False the second time, after it ran, and before it was inserted."""
    wheel = TimingWheel(4)
    one, other, never = entry(), entry(), entry()
    wheel.insert(one, 2)
    wheel.insert(other, 30)

    assert not never.cancel()
    assert list(wheel.advance(2)) == [one]
    assert (one.cancel(), one.pending) == (False, False)
    assert (other.pending, other.cancel(), other.cancel(), other.pending) == (True, True, False, False)
    assert len(wheel) == 0


def test_an_entry_can_be_cancelled_until_it_is_handed_over() -> None:
    """One that runs can cancel its neighbour, of the same tick or a later one, but not itself."""
    wheel = TimingWheel(4)
    entries = fill(wheel, {"a": 3, "b": 3, "c": 3, "d": 4})
    due = wheel.advance(10)
    first = next(due)

    assert first is entries["a"]
    assert (first.cancel(), entries["b"].cancel(), entries["d"].cancel()) == (False, True, True)
    assert len(wheel) == 1
    assert list(due) == [entries["c"]]


def test_entries_may_be_inserted_while_others_are_handed_over() -> None:
    """Into the tick that is being run, too; they come with the next call, so that none keeps the clock for itself."""
    wheel = TimingWheel(4)
    fill(wheel, {"a": 3, "b": 3})
    seen = []
    for due in wheel.advance(3):
        seen += names([due])
        wheel.insert(entry(f"{name(due)}+"), 3)

    assert seen == ["a", "b"]
    assert wheel.next_expiration() == 3
    assert names(wheel.advance(3)) == ["a+", "b+"]


def test_what_was_not_asked_for_comes_with_the_next_call() -> None:
    """Somebody who stops in the middle, by an exception say, loses nothing."""
    wheel = TimingWheel(4)
    fill(wheel, {"a": 1, "b": 1, "c": 2, "d": 7})

    assert names([next(wheel.advance(5))]) == ["a"]
    assert (len(wheel), wheel.next_expiration()) == (3, 5)
    assert names(wheel.advance(7)) == ["b", "c", "d"]


def test_a_place_in_the_circle_is_used_again() -> None:
    """Turn after turn; each time the bucket has the expiration of its turn."""
    wheel = TimingWheel(3)
    seen = []
    for due in range(1, 31):
        wheel.insert(entry(due), due)
        seen.append(wheel.next_expiration())
        assert names(wheel.advance(due)) == [due]

    assert seen == list(range(1, 31))
    assert {len(each.buckets) for each in wheel._wheels} == {3}


def test_the_delay_queue_holds_buckets_and_stays_short() -> None:
    """At most size times levels, however many entries there are; each bucket is in it once."""
    wheel, random = TimingWheel(8), Random(1)
    longest = 0
    for now in range(1000):
        list(wheel.advance(now))
        for _ in range(20):
            wheel.insert(entry(), now + random.randrange(1, 500))
        longest = max(longest, len(wheel._queue))
        assert len({id(bucket) for _, _, bucket in wheel._queue}) == len(wheel._queue)

    assert longest <= 8 * len(wheel._wheels)
    assert len(wheel) > 2000


def test_a_bucket_that_is_empty_again_wakes_nobody() -> None:
    """Cancelling everything leaves nothing to wait for, on no level; and the places can be used again."""
    wheel = TimingWheel(4)
    entries = [entry(due) for due in (2, 3, 9, 70, 1000)]
    for each in entries:
        wheel.insert(each, each.args[0])
    for each in entries[:3]:
        each.cancel()

    assert wheel.next_expiration() == 64
    assert [each.cancel() for each in entries[3:]] == [True, True]
    assert wheel.next_expiration() is None
    wheel.insert(entries[0], 2)
    assert wheel.next_expiration() == 2


def test_insert_says_when_the_next_look_is_earlier() -> None:
    """That is what wakes a sleeping clock: a bucket before all others, not a second entry in it, not a later one."""
    wheel = TimingWheel(4)

    assert [wheel.insert(entry(), due) for due in (50, 50, 60, 7, 3, 3, 9)] == [
        True,
        False,
        False,
        True,
        True,
        False,
        False,
    ]


def test_close_takes_everything_out_in_order() -> None:
    """What was handed over is not among it; the rest is, and can go into another wheel; nothing new comes in."""
    wheel = TimingWheel(3)
    fill(wheel, {"late": 100, "a": 2, "b": 2, "c": 4, "d": 13})
    next(wheel.advance(2))
    wheel.insert(entry("now"), 1)

    left = wheel.close()
    assert names(left) == ["b", "now", "c", "d", "late"]
    assert not any(each.cancel() for each in left)
    assert (len(wheel), wheel.next_expiration()) == (0, None)
    for due in (1, 5, 100):
        with pytest.raises(ClosedError):
            wheel.insert(entry(), due)
    other = TimingWheel(3)
    other.insert(left[0], 5)
    assert names(other.advance(5)) == ["b"]


def test_a_cancelled_entry_holds_nothing() -> None:
    """Its callback and arguments go at once, and the wheel knows nothing of it; without the garbage collector."""

    class Payload:
        pass

    wheel, payload = TimingWheel(), Payload()
    held = weakref.ref(payload)
    own = Callback(lambda: None, (payload,))
    wheel.insert(own, 1000)
    del payload
    gc.disable()
    try:
        own.cancel()
        assert held() is None
    finally:
        gc.enable()


class Own(Callback):
    """An entry of one test: those that other tests left may be freed meanwhile."""

    __slots__ = ()


def alive() -> int:
    return sum(type(each) is Own for each in gc.get_objects())


def test_no_entry_is_left_for_the_garbage_collector() -> None:
    """Entries that ran, cascaded or were cancelled are freed by their reference counts."""
    wheel = TimingWheel(4)
    gc.disable()
    try:
        for due in range(1, 200):
            wheel.insert(Own(print), due)
            Own(print).cancel()
            gone = Own(print)
            wheel.insert(gone, due)
            gone.cancel()
        del gone
        assert alive() == 199
        for each in wheel.advance(300):
            del each
        assert alive() == 0
    finally:
        gc.enable()


def test_a_cancel_between_two_buckets_finds_its_entry() -> None:
    """While a bucket cascades its entries are in the old bucket or in the new one; cancelling works at every step."""
    for step in range(5):
        wheel = TimingWheel(4)
        entries = [entry(number) for number in range(5)]

        class Meddler(dict[int, Bucket]):
            """Cancels one of the entries in the middle of the cascade."""

            steps = count()

            def __missing__(self, number: int) -> Bucket:
                self[number] = own = Bucket(number, CLOSED)
                return own

            def __getitem__(self, number: int) -> Bucket:
                if next(self.steps) == 2:
                    assert entries[step].cancel()  # noqa: B023 (used within the turn of the loop)
                return super().__getitem__(number)

        for at, each in enumerate(entries):
            wheel.insert(each, 16 + at % 2)
        old, into = wheel._queue[0][2], Meddler()
        old.cascade(1, into)

        assert len(old) == 0
        kept = [each for number in (16, 17) for each in into.get(number, ())]
        assert sorted(map(str, names(kept))) == [str(at) for at in range(5) if at != step]
        assert [each.pending for each in entries] == [at != step for at in range(5)]


@pytest.mark.parametrize("size", [1, 0, -3, 2.0, True, "8"])
def test_a_wheel_needs_buckets(size: object) -> None:
    with pytest.raises(ConfigError, match="at least 2"):
        TimingWheel(size)  # type: ignore[arg-type]


class Oracle:
    """A heap that does what a wheel should: by due tick, then by insertion."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.heap: list[tuple[int, int, int]] = []
        self.alive: set[int] = set()
        self.order = count()

    def insert(self, number: int, due: int) -> None:
        heapq.heappush(self.heap, (max(due, self.now), next(self.order), number))
        self.alive.add(number)

    def pop(self) -> int | None:
        while self.heap and self.heap[0][0] <= self.now:
            number = heapq.heappop(self.heap)[2]
            if number in self.alive:
                self.alive.discard(number)
                return number
        return None


class Both:
    """A wheel and the oracle, told the same. `meddle` says what an entry does when it runs: cancel one, insert one."""

    def __init__(self, wheel: TimingWheel, meddle: dict[int, tuple[int, int | None]]) -> None:
        self.wheel, self.oracle, self.meddle = wheel, Oracle(wheel.now), meddle
        self.entries: list[Entry] = []

    def insert(self, delay: int) -> None:
        number, due = len(self.entries), self.wheel.now + delay
        self.entries.append(entry(number))
        self.wheel.insert(self.entries[-1], due)
        self.oracle.insert(number, due)

    def cancel(self, number: int) -> None:
        if number < len(self.entries):
            assert self.entries[number].cancel() == (number in self.oracle.alive)
            self.oracle.alive.discard(number)

    def advance(self, by: int) -> None:
        now = self.oracle.now = self.wheel.now + by
        born = len(self.entries)
        for each in self.wheel.advance(now):
            assert name(each) == self.oracle.pop()
            self.run(name(each))
        late = list(
            iter(self.oracle.pop, None)
        )  # what was inserted meanwhile, for now or before, waits for the next call
        assert all(number >= born for number in late)
        for number in late:
            self.oracle.insert(number, now)

    def run(self, number: int) -> None:
        other, delay = self.meddle.get(number, (len(self.entries), None))
        self.cancel(other)
        if delay is not None and len(self.entries) < 300:
            self.insert(delay)

    def jump(self, _: int) -> None:
        if (tick := self.wheel.next_expiration()) is not None:
            assert tick >= self.wheel.now
            self.advance(tick - self.wheel.now)


# Delays for every level of small wheels, and ties; the clock moves not at all, a little, or by several turns.
far = st.sampled_from([15, 16, 17, 63, 64, 65, 255, 256, 4096])
steps = st.one_of(
    st.tuples(st.just("insert"), st.one_of(st.integers(-3, 12), far, st.integers(0, 20_000))),
    st.tuples(st.just("cancel"), st.integers(0, 200)),
    st.tuples(st.just("advance"), st.one_of(st.integers(0, 20), st.integers(0, 5000))),
    st.tuples(st.just("jump"), st.just(0)),
)
meddling = st.dictionaries(
    st.integers(0, 60), st.tuples(st.integers(0, 80), st.one_of(st.none(), st.integers(0, 40))), max_size=20
)
sizes = st.sampled_from([2, 3, 4, 20])


@given(st.lists(steps, max_size=80), meddling, sizes, st.integers(0, 70))
def test_the_wheel_does_what_a_heap_does(
    script: list[tuple[str, int]], meddle: dict[int, tuple[int, int | None]], size: int, start: int
) -> None:
    """Random inserts, cancels and advances, and callbacks that do the same: the same entries in the same order."""
    both = Both(TimingWheel(size, now=start), meddle)
    wheel, oracle = both.wheel, both.oracle
    for verb, value in script:
        getattr(both, verb)(value)
        assert len(wheel) == len(oracle.alive)
        assert (wheel.next_expiration() is None) == (not oracle.alive)

    expected = [number for _, _, number in sorted(oracle.heap) if number in oracle.alive]
    assert names(wheel.close()) == expected
