"""When a reader may wait without a look, driven by hand."""

from __future__ import annotations

from typing import Any

import pytest

from shardq.model import Received
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Batch, Call, Refused, Step, Unanswered, Wait
from shardq.ops.read import waiting
from shardq.ops.read.acks import Acks
from shardq.ops.read.look import Look, fast_read
from shardq.ops.read.read import read
from shardq.ops.read.waiting import FRESH_SECONDS, Outstanding, Waiting
from shardq.ops.settle.command import LoneAck
from shardq.ops.settle.settle import Settled
from shardq.testing import ManualClock
from tests.unit.driving import Driven, drive, state_of
from tests.unit.wire import NOW, is_repeated
from tests.unit.wire import read_reply as reply

ROW = [b"1700000000000-7", [b"k", b"t", b"b", b"x"]]
WANTED, BLOCK = 2, 5.0
HELD = Received("1-1-0", "t", 1, 30.0, b"x", "", {}, "", 0, 0.0, "0:1-1:1:holder::t")
NONE_LEFT = -3
LEFT_SOMETHING = {
    "as many as it wanted": reply(ROW, ROW),
    "fewer, while somebody watches for what comes": reply(ROW),
    "more work": reply(ROW, kind=b"MORE"),
    "a stream that was not declared": reply(ROW, kind=b"MISS"),
    "another epoch": reply(ROW, epoch=b"2", wait=NONE_LEFT),
}


class Room:
    """A queue of which a reader found nothing at 0 s, and told writers that it waits for a second."""

    def __init__(self, **state: Any) -> None:
        self.clock = ManualClock()
        self.state: QueueState = state_of(self.clock)
        for name, value in state.items():
            setattr(self.state, name, value)

    def read(
        self, *replies: Any, block: float = BLOCK, acks: Acks | None = None, made: Look | None = None
    ) -> Driven[list[Received]]:
        """One read; *replies* are to its looks, and after them its wait ends without a message."""
        left = list(replies)

        def answer(step: Step) -> Any:
            if isinstance(step, Call):
                return [NOW, b"o"] if step.script.name == "settle" else left.pop(0)
            if isinstance(step, Wait) and not left:
                step.waiter.rows, step.waiter.done = [], True
            return None

        return drive(read(self.state, WANTED, block, acks=acks, made=made), answer, self.clock)

    def take_all(self, last: Any = None) -> None:
        """Wait until 0.1 s, and look again: the *last* reply is a message by default, which was all that there was."""
        self.read(reply(wait=100), last or reply(ROW, wait=NONE_LEFT), reply())


def waits(done: Driven[Any]) -> list[float]:
    """Until when the waits last, at most."""
    return [step.waiter.wake_at for step in done.steps if isinstance(step, Wait)]


def looks(done: Driven[Any]) -> bool:
    """Whether the read looked before anything else."""
    return isinstance(done.steps[0], Call) and done.steps[0].script.name == "read"


def test_who_has_just_taken_all_there_was_waits_without_a_look_while_writers_notify() -> None:
    room = Room()
    room.take_all()
    room.clock.advance(0.05)
    done = room.read()
    assert done.calls == []
    assert waits(done) == [pytest.approx(1.0, abs=0.001)]


def test_it_looks_again_before_something_comes_that_nobody_watches_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.5)
    room = Room()
    room.take_all()
    assert waits(room.read()) == [pytest.approx(0.6, abs=0.001)]


@pytest.mark.parametrize("last", LEFT_SOMETHING.values(), ids=LEFT_SOMETHING)
def test_who_may_have_left_something_looks(last: Any) -> None:
    room = Room()
    view = room.state.view
    room.take_all(last)
    room.state.view = view
    assert looks(room.read(reply(ROW, ROW)))


@pytest.mark.parametrize("fast", [True, False])
def test_who_got_as_many_as_it_wanted_waits_without_a_look_if_none_is_left(fast: bool) -> None:
    room = Room()
    last = reply(ROW, ROW, wait=NONE_LEFT)
    if fast:
        room.take_all()
        room.clock.advance(FRESH_SECONDS)
        look = fast_read(room.state, WANTED, BLOCK, None, None, None, Outstanding(), Acks.of([HELD]))
        assert look is not None
        assert look.rows([[NOW, b"o"], last]) is not None
    else:
        room.take_all(last)
    assert room.read().calls == []


@pytest.mark.parametrize(
    "last", [reply(ROW, wait=NONE_LEFT), reply(ROW, ROW, wait=NONE_LEFT)], ids=["some", "as many as it wanted"]
)
def test_who_saw_the_clock_jump_looks(last: Any) -> None:
    """By that clock it is judged whether writers notify."""
    room = Room()
    room.read(reply(), block=0.0)
    jumped = [*last]
    jumped[1] += 60_000
    room.take_all(jumped)
    assert looks(room.read(reply(ROW, ROW, now=NOW + 60_000)))


@pytest.mark.parametrize("passed", [FRESH_SECONDS, 0.9])
def test_who_took_all_there_was_some_time_ago_looks(passed: float) -> None:
    room = Room()
    room.take_all()
    room.clock.advance(passed)
    assert looks(room.read(reply(ROW, ROW)))


def test_who_looks_for_the_first_time_looks() -> None:
    """Nobody has told writers to notify."""
    room = Room()
    assert looks(room.read(reply(ROW, wait=NONE_LEFT)))
    assert looks(room.read(reply(ROW, ROW)))


def test_who_does_not_wait_looks() -> None:
    room = Room()
    room.take_all()
    assert looks(room.read(reply(), block=0.0))


def test_the_first_try_of_a_reader_that_may_wait_without_a_look_only_acks() -> None:
    room = Room()
    room.take_all()
    wanted = (room.state, 50, BLOCK, None, None, None, Outstanding())
    assert fast_read(*wanted, None) is None  # there is nothing to send
    look = fast_read(*wanted, Acks.of([HELD]))
    assert look is not None
    assert isinstance(look.step, LoneAck)
    room.clock.advance(FRESH_SECONDS)
    later = fast_read(*wanted, Acks.of([HELD]))
    assert later is not None
    assert isinstance(later.step, Batch)


@pytest.mark.parametrize(
    ("outcome", "more"),
    [
        ([NOW, b"o"], []),
        (Refused("LOADING", ""), ["settle"]),
        (Unanswered("lost", sent=True), ["settle"]),
    ],
)
def test_a_first_try_that_only_acked_is_followed_by_the_wait(outcome: Any, more: list[str]) -> None:
    room = Room()
    room.take_all()
    acks = Acks.of([HELD])
    look = fast_read(room.state, WANTED, BLOCK, None, None, None, Outstanding(), acks)
    assert look is not None
    assert look.rows(outcome) is None
    done = room.read(acks=acks, made=look)
    assert done.calls == more
    assert len(waits(done)) == 1
    assert acks.results == {HELD.token: Settled.OK}
    assert [is_repeated(step) for step in done.steps if isinstance(step, Call)] == [
        isinstance(outcome, Unanswered)
    ] * len(more)


def test_an_answer_that_came_after_the_read_began_that_took_all_may_stand_for_a_later_look() -> None:
    """Of two threads: which of their reads the server ran first is not known."""
    room = Waiting(ManualClock())
    room.told_until = 9.0
    room.emptied(sent=1.0, now=2.0)
    assert room.proven_for(2.0) == pytest.approx(5.0)
    room.left_some(2.0)
    room.emptied(sent=1.5, now=2.0)
    assert room.proven_for(2.0) == 0
    room.emptied(sent=2.1, now=2.2)
    assert room.proven_for(2.2) == pytest.approx(5.0)


def test_the_acks_of_a_read_that_does_not_look_are_sent_before_the_wait() -> None:
    room = Room()
    room.take_all()
    acks = Acks.of([HELD])
    done = room.read(acks=acks)
    assert (done.calls, [type(step) for step in done.steps]) == (["settle"], [Call, Wait])
    assert (acks.results, acks.answered_at) == ({HELD.token: Settled.OK}, room.clock.monotonic())


def test_who_found_nothing_just_now_looks() -> None:
    """It may have been told to look at a moment, on behalf of all who wait."""
    room = Room()
    room.take_all()
    assert looks(room.read(reply(), block=0.0))
    assert looks(room.read(reply(ROW, ROW)))
