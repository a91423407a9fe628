"""Those who wait for results: what was told before somebody joined is not told twice."""

from __future__ import annotations

import pytest

from shardq.ops.results.waiters import ResultWaiter, ResultWaiting
from shardq.testing import ManualClock
from shardq.timing import Purgatory, Timer


class Waits:
    def __init__(self) -> None:
        clock = ManualClock()
        self.waiting = ResultWaiting(clock)
        self._purgatory = Purgatory(Timer(clock=clock))

    def join(self, message_id: str, position: str) -> ResultWaiter:
        waiter = ResultWaiter(self.waiting, message_id, until=60, position=position)
        self.waiting.join(waiter, self._purgatory, None)
        return waiter


@pytest.fixture
def waits() -> Waits:
    return Waits()


def test_who_looked_before_an_end_was_told_looks_again(waits: Waits) -> None:
    assert waits.waiting.note([("1000-8", ["b"]), ("1000-9", ["a"])]) == []
    early, late, other = waits.join("a", "999-10"), waits.join("a", "1000-9"), waits.join("c", "0-0")
    assert (early.done, late.done, other.done) == (True, False, False)
    assert waits.waiting.result_waiters() == [late, other]
    assert waits.waiting.note([("1000-10", ["a"])]) == [late]


def test_nobody_looks_twice_for_one_end(waits: Waits) -> None:
    """A dead letter that was told may wait again by then, after a redrive."""
    waits.waiting.note([("1000-9", ["a"])])
    first = waits.join("a", "5-0")
    assert first.done
    assert not waits.join("a", first.position).done


def test_the_ends_that_came_last_are_remembered(waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardq.ops.results.waiters.MAX_REMEMBERED", 2)
    for number, message_id in enumerate("abac"):
        waits.waiting.note([(f"{number + 1}-0", [message_id])])
    assert [waits.join(each, "0-0").done for each in "abc"] == [True, False, True]
