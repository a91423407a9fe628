"""A writer's window beside plain lists: nobody overtakes, no more than the bounds have a place, each gets one."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shardq.flow import Fixed, Vegas
from shardq.ops.write.window import Place, Window
from tests.selection import COMMAND

MOST_BYTES = 100


class Windows(RuleBasedStateMachine):
    """Messages come, wait, leave and end, and the window's size changes."""

    @initialize(size=st.integers(1, 5))
    def begin(self, size: int) -> None:
        self.limit = Fixed(size)
        self.window = Window(self.limit, MOST_BYTES)
        self.now = 0.0
        self.held: list[Place] = []
        self.waiting: list[Place] = []
        self.woken: list[Place] = []
        self.flushes: list[tuple[set[Place], list[bool]]] = []
        self.ended: set[Place] = set()

    @rule(weight=st.integers(1, 150))
    def enter(self, weight: int) -> None:
        place = Place(weight)
        if self.window.enter(place, self.now):
            assert not self.waiting
            self.held.append(place)
        else:
            self.waiting.append(place)
            assert self.window.must_wait(place, lambda: self.woken.append(place))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), answered=st.sampled_from([True, False, None]))
    def end(self, data: st.DataObject, answered: bool | None) -> None:
        place = data.draw(st.sampled_from(self.held))
        self.now += 0.1
        self.held.remove(place)
        self.ended.add(place)
        self.window.free(place, self.now, answered=answered)
        self.take_in()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(place)
        assert self.window.give_up(place, self.now)
        self.take_in()

    @rule(size=st.integers(1, 5))
    def change(self, size: int) -> None:
        self.limit.size = size

    @rule()
    def flush(self) -> None:
        told: list[bool] = []
        if not self.window.flush(lambda: told.append(True)):
            self.flushes.append((set(self.held), told))
        else:
            assert not self.held

    def take_in(self) -> None:
        """Those who were woken are the first who waited, and there was room for each."""
        for place in self.woken:
            assert place.given
            assert self.waiting.pop(0) is place
            self.held.append(place)
        self.woken.clear()
        if self.waiting:
            full = len(self.held) >= self.limit.size
            heavy = self.held and sum(each.weight for each in self.held) + self.waiting[0].weight > MOST_BYTES
            assert full or heavy, "there was room for the first who waits"

    @invariant()
    def the_bounds_hold(self) -> None:
        assert len(self.window) == len(self.held)
        assert sum(each.weight for each in self.held) <= MOST_BYTES or len(self.held) == 1
        assert len(self.held) <= 5
        assert not any(place.given for place in self.waiting)

    @invariant()
    def a_flush_ends_with_the_last_of_its_messages(self) -> None:
        for left, told in self.flushes:
            assert bool(told) == (left <= self.ended)
            assert len(told) <= 1


Windows.TestCase.settings = settings(
    max_examples=75 if COMMAND == "test" else 300, stateful_step_count=40, deadline=None
)
TestWindows = Windows.TestCase


@pytest.mark.runs_in("test-all")
def test_answers_open_the_window_and_failures_halve_it() -> None:
    limit = Vegas(first=16, least=16, low=250, high=500)
    window = Window(limit, 10**9)
    now = 0.0
    for _ in range(200):
        now += 1.0
        places = [Place(1) for _ in range(window.size)]
        assert all(window.enter(place, now) for place in places)
        for place in places:
            window.free(place, now + 0.001 * len(places), answered=True)
    opened = window.size
    assert 250 < opened < 1000
    assert window.accepted > 10_000
    places = [Place(1) for _ in range(window.size)]
    assert all(window.enter(place, now) for place in places)
    for place in places:
        window.free(place, now + 30, answered=False)
    assert window.size == opened // 2, "all that were under way at one time count once"
