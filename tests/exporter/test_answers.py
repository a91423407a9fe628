"""One answer for all; early ones are few."""

from __future__ import annotations

from shardq.exporter.answers import HttpAnswer
from shardq.testing import ManualClock


def test_an_early_answer_is_at_the_expense_of_the_next_one() -> None:
    clock, asked = ManualClock(), list[float]()

    def ask() -> int:
        asked.append(clock.monotonic())
        return len(asked)

    answer, begun = HttpAnswer(ask, 1.0, clock), clock.monotonic()
    assert answer.get() == 1
    clock.advance(0.25)
    assert answer.get() == 1
    assert answer.get(early=True) == 2
    assert answer.get(early=True) == 2  # not again so soon
    clock.advance(1.5)
    assert answer.get() == 2  # as if it had been asked after a second
    clock.advance(0.25)
    assert answer.get() == 3
    clock.advance(5)
    assert answer.get(early=True) == 4  # that was due
    clock.advance(0.5)
    assert answer.get(early=True) == 5
    assert [at - begun for at in asked] == [0, 0.25, 2.0, 7.0, 7.5]


def test_whoever_asks_early_all_the_time_there_is_one_a_second() -> None:
    clock, asked = ManualClock(), list[float]()
    answer = HttpAnswer(lambda: asked.append(clock.monotonic()), 1.0, clock)
    for _ in range(1000):
        answer.get(early=True)
        clock.advance(0.01)
    assert len(asked) <= 11
