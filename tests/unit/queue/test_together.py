"""Operations side by side: what they ask for goes out together, as far as it can."""

from __future__ import annotations

from typing import Any

from shardq.errors import ConfigError
from shardq.ops.queue.steps import Ask, Batch, Call, Late, Op, Refused, Sleep
from shardq.ops.queue.together import go_on, run_patiently, run_together
from shardq.protocol.keys import QueueKeys


def call(name: str) -> Call:
    return Call.on(QueueKeys(name), "glance")


def asks(*steps: Any) -> Op[list[Any]]:
    """Yield these steps. Return what came of each; a failure as it is."""
    found: list[Any] = []
    for step in steps:
        try:
            found.append((yield step))
        except Refused as refused:
            found.append(refused)
    return found


def driven(op: Op[Any], *outcomes: Any) -> tuple[list[Any], Any]:
    """Drive *op* with these *outcomes*. Return its steps and its result."""
    steps = [next(op)]
    for outcome in outcomes:
        try:
            steps.append(op.throw(outcome) if isinstance(outcome, Exception) else op.send(outcome))
        except StopIteration as done:
            return steps, done.value
    raise AssertionError(steps[-1])


def test_calls_go_out_together_and_each_operation_gets_its_outcome() -> None:
    first, second, third = call("a"), call("b"), call("c")
    refused = Refused("ERR", "no")
    steps, results = driven(run_together([asks(first, third), asks(second)]), [1, refused], [3])
    assert [step.calls for step in steps] == [(first, second), (third,)]
    assert results == [[1, 3], [refused]]


def test_a_batch_goes_with_the_others_and_says_which_calls_are_not_sent_again() -> None:
    ack, read, other = call("a"), call("a"), call("b")
    pair = Batch((ack, read), 5.0, once=True)
    steps, results = driven(run_together([asks(other), asks(pair)]), [1, 2, 3])
    assert (steps[0].calls, steps[0].once) == ((other, ack, read), frozenset({1, 2}))
    assert results == [[1], [[2, 3]]]


def test_what_goes_in_no_batch_goes_first_and_one_by_one() -> None:
    ask, other = Ask(("TIME",)), call("b")
    refused = Refused("ERR", "no")
    steps, results = driven(run_together([asks(ask, Sleep(1.0)), asks(ask, other)]), 1, refused, [2], None)
    assert steps == [ask, ask, Batch((other,), other.until, frozenset()), Sleep(1.0)]
    assert results == [[1, None], [refused, 2]]


def test_an_operation_that_fails_at_once_asks_nothing() -> None:
    def fails() -> Op[Any]:
        yield from ()
        raise ConfigError("no")

    _, results = driven(run_together([fails(), asks(call("a"))]), [1])
    assert isinstance(results[0], ConfigError)
    assert results[1] == [1]


def test_an_operation_that_is_late_is_left_and_goes_on_by_itself() -> None:
    """The others end without it; a batch of it gets all outcomes, a call its own."""
    first, second, third = call("a"), call("b"), call("c")
    pending = object()
    op = run_patiently([asks(first), asks(second, third), asks(Batch((first, second), 9.0))], {1, 2}, 0.25)
    late = [Late(pending, (at,)) for at in range(1, 4)]
    (step,), results = driven(op, [1, *late])
    assert (step.may_be_late, step.patience) == ({1, 2, 3}, 0.25)
    assert results[0] == [1]
    steps, found = driven(go_on(results[1]), [2], 3)
    assert (steps, found) == ([Late(pending, (1,)), third], [2, 3])
    steps, found = driven(go_on(results[2]), [4, 5])
    assert (steps, found) == ([Late(pending, (2, 3))], [[4, 5]])


def test_one_that_pauses_after_a_failed_try_is_left_too_but_not_one_that_is_needed() -> None:
    asked = call("a")
    op = run_patiently([asks(Sleep(1.0), asked), asks(Sleep(2.0), asked)], {0})
    steps, results = driven(op, None, [1])
    assert [type(each) for each in steps] == [Sleep, Batch]
    assert steps[0] == Sleep(2.0)
    assert results[1] == [None, 1]
    refused = Refused("ERR", "no")
    steps, found = driven(go_on(results[0]), None, refused)
    assert (steps, found) == ([Sleep(1.0), asked], [None, refused])


def test_one_that_was_left_ends_with_the_others_if_nobody_is_given_it() -> None:
    """The reader is cancelled while another operation goes on."""
    ended: list[str] = []

    def noting(name: str, *steps: Any) -> Op[Any]:
        try:
            return (yield from asks(*steps))
        finally:
            ended.append(name)

    first, second = call("a"), call("b")
    op = run_patiently([noting("late", first), noting("quick", second, second)], {0}, 0.25)
    next(op)
    op.send([Late(object(), (0,)), 1])
    assert ended == []
    op.close()
    assert ended == ["late", "quick"]
