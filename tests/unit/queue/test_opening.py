"""What is told of a look-up that gets no answer: nothing was changed before the first try of a call, and only then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from shardq.errors import BackendTimeout, ConfigError, OutcomeUnknown, PartlyWritten, ShardqError
from shardq.ops.operate.limits import pause
from shardq.ops.operate.queues import purge, redrive
from shardq.ops.operate.weights import set_weights
from shardq.ops.queue.opening import open_queue
from shardq.ops.queue.steps import Call, Op, Refused, Step, Unanswered
from shardq.ops.queue.upkeep import upkeep
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.write import write_many
from shardq.testing import ManualClock
from tests.unit.driving import drive, state_of

LOST = Unanswered("reset", sent=True)
OPENED = [
    b"OK",
    0,
    [b"n", b"0", b"streams", b"4", b"wanted", b"4", b"epoch", b"1", b"created", b"1", b"id", b"1-x"],
]


def error_of(op: Op[Any], answer: Callable[[Step], Any], clock: ManualClock) -> ShardqError:
    with pytest.raises(ShardqError) as found:
        drive(op, answer, clock)
    return found.value


@pytest.mark.parametrize("creates", [True, False])
def test_a_look_up_before_all_that_gets_no_answer_changed_nothing(creates: bool) -> None:
    clock = ManualClock()
    state = state_of(clock)
    state.creates = creates
    state.forget()
    error = error_of(open_queue(state, clock.monotonic() + 1), lambda _: LOST, clock)
    assert type(error) is BackendTimeout
    assert "nothing of this call was sent" in str(error)


@pytest.mark.parametrize("creates", [True, False])
def test_a_write_that_may_have_happened_is_unknown_though_the_queue_cannot_be_looked_up_afterwards(
    creates: bool,
) -> None:
    """Its first try got no answer. The second one was told that the queue has moved."""
    clock = ManualClock()
    state = state_of(clock)
    state.creates = creates
    writes: Iterator[Any] = iter([LOST, [b"EPOCH"]])

    def answer(step: Step) -> Any:
        assert isinstance(step, Call)
        return next(writes) if step.script.name == "write" else LOST

    error = error_of(write_many(state, [Outgoing("t", "b", b"x")], 1), answer, clock)
    assert "nothing" not in str(error)
    results = error.results if isinstance(error, PartlyWritten) else [error]
    assert [type(each) for each in results] == [OutcomeUnknown]


CHANGES: dict[str, Callable[[Any], Op[Any]]] = {
    "set_weights": lambda state: set_weights(state, {"t": 2}, 1),
    "pause": lambda state: pause(state, "t", None, 1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_may_have_happened_is_unknown_though_the_queue_cannot_be_looked_up_afterwards(
    change: str,
) -> None:
    clock = ManualClock()
    state = state_of(clock)
    replies: Iterator[Any] = iter([OPENED, LOST, b"EPOCH"])
    error = error_of(CHANGES[change](state), lambda _: next(replies, LOST), clock)
    assert isinstance(error, OutcomeUnknown)


def changed(*answers: Any) -> ShardqError:
    """The error of a change of limits that is answered so, after 0.3 s each, the last one again and again."""
    clock, left = ManualClock(), list(answers)

    def answer(step: Step) -> Any:
        if isinstance(step, Call) and step.script.name == "limit":
            clock.advance(0.3)
            return left.pop(0) if len(left) > 1 else left[0]
        return OPENED

    return error_of(pause(state_of(clock), "t", None, 1), answer, clock)


def test_a_change_that_is_refused_is_unknown_only_if_an_earlier_try_may_have_made_it() -> None:
    """A try of this epoch that was refused shows that no earlier one of it was executed."""
    assert type(changed(b"PLAIN")) is ConfigError
    assert type(changed(LOST, b"PLAIN")) is ConfigError
    assert type(changed(b"EPOCH", b"PLAIN")) is ConfigError
    assert type(changed(LOST, b"EPOCH", b"PLAIN")) is OutcomeUnknown


def test_a_change_for_which_others_leave_no_time_is_unknown_only_if_an_earlier_try_may_have_made_it() -> None:
    assert type(changed(b"EPOCH")) is BackendTimeout
    assert type(changed(LOST, b"EPOCH")) is OutcomeUnknown


@pytest.mark.parametrize("change", [lambda state: purge(state, 1), lambda state: redrive(state, [], 1)])
def test_a_change_of_which_nothing_was_sent_changed_nothing(change: Callable[[Any], Op[Any]]) -> None:
    clock = ManualClock()
    assert type(error_of(change(state_of(clock)), lambda _: LOST, clock)) is BackendTimeout


def test_old_results_that_may_not_be_swept_cost_one_call_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """A producer need not have the right to them. Its calls go on, and are not doubled."""
    clock = ManualClock()
    state = state_of(clock)
    state.view = replace(state.view, has_results=True)
    calls: list[str] = []

    def answer(step: Step) -> Any:
        assert isinstance(step, Call)
        calls.append(step.script.name)
        return Refused("NOPERM", "it has no right to that key")

    for _ in range(5):
        assert state.view.has_upkeep
        drive(upkeep(state, clock.monotonic()), answer, clock)
    assert calls == ["forget_results"]
    assert caplog.text.count("will be tried again") == 1
