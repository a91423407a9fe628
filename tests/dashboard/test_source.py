"""Where scenes get their numbers: one question is asked once for all."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shardq.client import AsyncClient
from shardq.dashboard.source import MAX_ANSWERS, SceneSource
from shardq.errors import BackendError
from shardq.testing import ManualClock


class Asked:
    """Counts how often it is asked, and answers when it may."""

    def __init__(self, clock: ManualClock, takes: float = 0.0) -> None:
        self.clock, self.takes = clock, takes
        self.times = 0
        self.begun = asyncio.Event()
        self.may = asyncio.Event()
        self.may.set()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.times += 1
        self.begun.set()
        await self.may.wait()
        self.clock.advance(self.takes)
        if self.error is not None:
            raise self.error
        return self.times


@pytest.fixture
def source(clock: ManualClock) -> SceneSource:
    return SceneSource(cast("AsyncClient", SimpleNamespace(clock=clock)))


async def test_all_who_come_together_get_one_answer(source: SceneSource, clock: ManualClock) -> None:
    ask = Asked(clock)
    assert await asyncio.gather(*(source.shared("a", ask) for _ in range(100))) == [1] * 100
    assert await source.shared("b", ask) == 2  # another question


async def test_an_answer_is_asked_for_again_when_it_is_old(source: SceneSource, clock: ManualClock) -> None:
    ask = Asked(clock)
    await source.shared("a", ask)
    clock.advance(1.9)
    assert await source.shared("a", ask) == 1
    assert await source.shared("a", ask, fresh=1.0) == 2
    clock.advance(2.0)
    assert await source.shared("a", ask) == 3


async def test_what_takes_long_is_asked_for_less_often(source: SceneSource, clock: ManualClock) -> None:
    ask = Asked(clock, takes=0.2)
    await source.shared("a", ask)
    clock.advance(9.9)
    assert await source.shared("a", ask) == 1
    clock.advance(0.1)
    assert await source.shared("a", ask) == 2


async def test_one_that_hung_once_is_not_taken_for_a_slow_one(source: SceneSource, clock: ManualClock) -> None:
    ask = Asked(clock, takes=0.001)
    await source.shared("a", ask)
    clock.advance(2)
    ask.takes = 4.0
    assert await source.shared("a", ask) == 2
    clock.advance(2)
    assert await source.shared("a", ask) == 3


async def test_a_failure_is_raised_to_all_and_kept_for_a_second(source: SceneSource, clock: ManualClock) -> None:
    ask = Asked(clock)
    ask.error = ValueError("no")
    found = await asyncio.gather(*(source.shared("a", ask) for _ in range(10)), return_exceptions=True)
    assert [*map(str, found)] == ["no"] * 10
    clock.advance(0.9)
    with pytest.raises(ValueError, match="no"):
        await source.shared("a", ask)
    assert ask.times == 1
    clock.advance(0.1)
    ask.error = None
    assert await source.shared("a", ask) == 2


async def test_one_who_goes_away_does_not_end_what_others_wait_for(source: SceneSource, clock: ManualClock) -> None:
    ask = Asked(clock)
    ask.may.clear()
    first, second = (asyncio.create_task(source.shared("a", ask)) for _ in range(2))
    await ask.begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    ask.may.set()
    assert await second == 1


async def test_what_nobody_waits_for_any_more_is_the_answer_for_those_who_come(
    source: SceneSource, clock: ManualClock
) -> None:
    ask = Asked(clock)
    ask.may.clear()
    first = asyncio.create_task(source.shared("a", ask))
    await ask.begun.wait()
    first.cancel()
    await asyncio.wait([first])
    ask.may.set()
    assert await source.shared("a", ask) == 1


async def test_answers_are_bounded_and_those_asked_for_last_stay(source: SceneSource, clock: ManualClock) -> None:
    asks: dict[Any, Asked] = {each: Asked(clock) for each in range(MAX_ANSWERS + 1)}
    await source.shared(0, asks[0])
    for each in range(1, MAX_ANSWERS):
        await source.shared(each, asks[each])
    await source.shared(0, asks[0])
    await source.shared(MAX_ANSWERS, asks[MAX_ANSWERS])
    await source.shared(0, asks[0])
    await source.shared(1, asks[1])
    assert (asks[0].times, asks[1].times) == (1, 2)


async def test_what_an_action_changed_is_asked_for_again(source: SceneSource, clock: ManualClock) -> None:
    ask, other = Asked(clock), Asked(clock)
    await source.shared(("look", "jobs"), ask)
    await source.shared(("look", "mails"), other)
    source.outdate("jobs")
    assert await source.shared(("look", "jobs"), ask) == 2
    assert await source.shared(("look", "mails"), other) == 1
    source.forget(("look", "mails"))
    assert await source.shared(("look", "mails"), other) == 2


async def test_what_takes_long_rests_however_often_somebody_acts(source: SceneSource, clock: ManualClock) -> None:
    """A survey of 100,000 tenants takes 0.2 s: one who acts each second would make it each second, for all."""
    survey = Asked(clock, takes=0.2)
    for _ in range(50):
        await source.shared(("survey", "jobs"), survey, fresh=5.0)
        source.outdate("jobs")
        clock.advance(1.0)
    assert survey.times == 5


async def test_what_was_under_way_when_an_action_was_done_is_asked_for_again(
    source: SceneSource, clock: ManualClock
) -> None:
    """It may tell of before. It is asked once at a time, however many actions there are."""
    ask = Asked(clock)
    ask.may.clear()
    waiting = asyncio.create_task(source.shared(("look", "jobs"), ask))
    await ask.begun.wait()
    source.outdate("jobs")
    again = asyncio.create_task(source.shared(("look", "jobs"), ask))
    ask.may.set()
    assert set(await asyncio.gather(waiting, again)) == {1}
    assert await source.shared(("look", "jobs"), ask) == 2


async def test_when_redis_is_back_what_failed_is_asked_at_once(source: SceneSource, clock: ManualClock) -> None:
    ask, slow = Asked(clock), Asked(clock, takes=0.2)
    await source.shared("slow", slow)
    ask.error = BackendError("away")
    with pytest.raises(BackendError):
        await source.shared("quick", ask)
    ask.error = None
    source.recover()
    assert (await source.shared("quick", ask), await source.shared("slow", slow)) == (2, 1)
    clock.advance(10.0)
    assert await source.shared("slow", slow) == 2


async def test_what_took_long_rests_no_longer_than_is_said(source: SceneSource, clock: ManualClock) -> None:
    """An answer that took a second rests for 50 s, but for a question that may not be told of so late."""
    asked = 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        clock.advance(1.0)
        return asked

    assert await source.shared("q", ask, longest=10.0) == 1
    clock.advance(9.0)
    assert await source.shared("q", ask, longest=10.0) == 1
    clock.advance(2.0)
    assert await source.shared("q", ask, longest=10.0) == 2
    clock.advance(40.0)
    assert await source.shared("q", ask) == 2
    clock.advance(20.0)
    assert await source.shared("q", ask) == 3


async def test_a_question_that_takes_longer_by_and_by_rests_longer(source: SceneSource, clock: ManualClock) -> None:
    """The quickest answer ever says nothing of what the question costs today."""
    takes = 0.1

    async def ask() -> float:
        clock.advance(takes)
        return takes

    assert await source.shared("q", ask) == 0.1
    takes = 1.0
    for _ in range(2):
        clock.advance(60.0)
        assert await source.shared("q", ask) == 1.0
    takes = 2.0
    clock.advance(30.0)
    assert await source.shared("q", ask) == 1.0
