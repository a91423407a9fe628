"""The races of insert, cancel and the clock, replayed: a bucket calls a hook at the very moment that matters."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from shardq.timing import Bucket, Callback, Entry, TimingWheel
from tests.timing.names import names


def nothing() -> None:
    pass


class Hooked(Bucket):
    """Calls what the test put there, once, in the middle of an operation."""

    before_store: Callable[[], object] = staticmethod(nothing)
    after_store: Callable[[], object] = staticmethod(nothing)
    after_look: Callable[[], object] = staticmethod(nothing)
    before_pop: Callable[[], object] = staticmethod(nothing)
    after_pop: Callable[[], object] = staticmethod(nothing)

    def __setitem__(self, entry: Entry, value: bool, /) -> None:
        once("before_store")
        super().__setitem__(entry, value)
        once("after_store")

    def pop(self, entry: Entry, missing: Any, /) -> Any:  # type: ignore[override]
        once("before_pop")
        found = super().pop(entry, missing)
        once("after_pop")
        return found

    def __bool__(self) -> bool:
        found = len(self) > 0
        once("after_look")
        return found


def once(moment: str) -> None:
    hook = getattr(Hooked, moment)
    setattr(Hooked, moment, staticmethod(nothing))
    hook()


def at(moment: str, hook: Callable[[], object]) -> None:
    setattr(Hooked, moment, staticmethod(hook))


@pytest.fixture
def wheel() -> TimingWheel:
    """With an open bucket for tick 2 and one for ticks 16 to 31."""
    made = TimingWheel(4, kind=Hooked)
    made.insert(Callback(nothing, ("two",)), 2)
    made.insert(Callback(nothing, ("sixteen",)), 16)
    return made


def runs(wheel: TimingWheel, until: int) -> list[object]:
    return names(wheel.advance(until))


@pytest.mark.parametrize("moment", ["before_store", "after_store"])
def test_the_clock_overtakes_an_insert(wheel: TimingWheel, moment: str) -> None:
    """It closes and drains the bucket between the choice of it and the second look: the entry runs, once."""
    seen: list[object] = []
    at(moment, lambda: seen.extend(runs(wheel, 5)))
    wheel.insert(Callback(nothing, ("late",)), 2)

    assert seen == (["two", "late"] if moment == "after_store" else ["two"])
    seen += runs(wheel, 6)
    assert seen == ["two", "late"]
    assert len(wheel) == 1


@pytest.mark.parametrize("moment", ["before_store", "after_store"])
def test_a_cascade_overtakes_an_insert(wheel: TimingWheel, moment: str) -> None:
    """The bucket went to the wheel below, with the entry or without: it runs at its tick."""
    at(moment, lambda: runs(wheel, 17))
    wheel.insert(Callback(nothing, ("late",)), 18)

    assert len(wheel) == 1
    assert runs(wheel, 17) == []
    assert runs(wheel, 18) == ["late"]


def test_an_insert_overtakes_the_retirement_of_an_empty_bucket() -> None:
    """Found empty, filled, closed: it is opened again with what came."""
    wheel = TimingWheel(4, kind=Hooked)
    for due in (2, 20):
        gone = Callback(nothing)
        wheel.insert(gone, due)
        gone.cancel()
    at("after_look", lambda: wheel.insert(Callback(nothing, ("quick",)), 2))

    assert wheel.next_expiration() == 2
    assert runs(wheel, 2) == ["quick"]
    assert wheel.next_expiration() is None


@pytest.mark.parametrize("moment", ["before_store", "after_store", "before_pop", "after_pop"])
def test_a_cancel_in_the_middle_of_a_move(wheel: TimingWheel, moment: str) -> None:
    """By the clock's own thread: before the entry is in its new bucket, in both, or only in the new one."""
    own = Callback(nothing, ("own",))
    wheel.insert(own, 17)
    first = next(iter(wheel._queue[1][2]))
    first.cancel()  # so that `own` is the first to be moved
    won: list[bool] = []
    at(moment, lambda: won.append(own.cancel()))

    assert runs(wheel, 17) == ["two"]
    assert (won, own.pending, own.cancel(), len(wheel)) == ([True], False, False, 0)


@pytest.mark.parametrize("moment", ["before_store", "after_store", "before_pop", "after_pop"])
def test_of_two_threads_that_cancel_an_entry_while_it_is_moved_one_succeeds(wheel: TimingWheel, moment: str) -> None:
    own = Callback(nothing, ("own",))
    wheel.insert(own, 17)
    first = next(iter(wheel._queue[1][2]))
    first.cancel()  # so that `own` is the first to be moved
    won: list[bool] = []
    threads = [threading.Thread(target=lambda: won.append(own.cancel())) for _ in range(2)]

    def cancel() -> None:
        for thread in threads:
            thread.start()
            thread.join(0.05)  # the second one waits for the end of the move; after the pop the first one does, too

    at(moment, cancel)
    ran = runs(wheel, 17)
    for thread in threads:
        thread.join(20)
    assert (ran, sorted(won)) == (["two"], [False, True]) or (ran, won) == (["two", "own"], [False, False])
    assert (own.pending, len(wheel)) == (False, 0)


def test_an_entry_that_is_inserted_anew_during_a_cascade_can_be_cancelled(wheel: TimingWheel) -> None:
    """The clock comes to it after it left the bucket that is being emptied, and was put in another one."""
    own = Callback(nothing, ("own",))
    wheel.insert(own, 17)
    wheel.insert(Callback(nothing, ("other",)), 40)

    def insert_anew() -> None:
        assert own.leave()
        wheel.insert(own, 40)

    at("before_store", insert_anew)
    assert runs(wheel, 17) == ["two", "sixteen"]
    assert own.pending
    assert own.cancel()
    assert runs(wheel, 40) == ["other"]


@pytest.mark.parametrize("leave", [Callback.cancel, Entry.leave])
def test_an_entry_that_is_moved_while_it_is_cancelled_is_found(leave: Callable[[Entry], bool]) -> None:
    """The cancel looks into the old bucket just when the move is over: it looks into the new one."""
    entry, new = Callback(nothing), Bucket()

    class Old(Bucket):
        def pop(self, entry: Entry, missing: Any, /) -> Any:  # type: ignore[override]
            new[entry] = True
            entry.bucket = new
            return missing

    entry.bucket = Old()
    assert leave(entry)
    assert (len(new), entry.pending) == (0, False)


def test_insert_and_cancel_take_no_lock(wheel: TimingWheel) -> None:
    """Into buckets that are open, also those that a cascade opened: they work while somebody holds the lock."""
    wheel.insert(Callback(nothing), 18)
    runs(wheel, 16)
    wheel.insert(Callback(nothing), 25)
    with wheel._lock:
        for due in (18, 25, 26, 18):
            entry = Callback(nothing)
            wheel.insert(entry, due)
            assert entry.cancel()


def test_buckets_are_not_kept(wheel: TimingWheel) -> None:
    """A bucket that was large stays large, so it goes when it has been run; a closed one is all that remains."""
    wheel.insert(Callback(nothing, ("a",)), 17)
    wheel.insert(Callback(nothing, ("b",)), 17)
    runs(wheel, 17)
    gc.collect()
    ours = [each for each in gc.get_referrers(Hooked) if type(each) is Hooked]

    assert ours == [wheel._closed]
