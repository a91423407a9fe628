"""Run several operations at once: their next calls are sent together, in batches of a bounded size."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from shardq.errors import ShardqError
from shardq.ops.queue.steps import Batch, Call, Late, Op, Refused, Sendable, Sleep, Step, Unanswered, Underreplicated

T = TypeVar("T")
MAX_KEYS: Final = 2000
"""Keys that the calls of one round trip declare at most, since the server serves no other client meanwhile."""


class Left(msgspec.Struct):
    """An operation that was left at a `step` which is late, or is a pause after a try that failed. `go_on` ends it.

    It takes one outcome of a step that is not `many`.
    """

    op: Any
    step: Step
    many: bool


def run_together(ops: Sequence[Op[T]]) -> Op[list[T | ShardqError]]:
    """Run *ops* side by side, in few round trips. Return for each operation its result or the error it raised.

    Calls and batches of them go together, other steps one after the other. Operations that pause do so together, once
    no other has a call to make. Closing this ends all of them.
    """
    return cast("list[T | ShardqError]", (yield from run_patiently(ops, ())))


def run_patiently(
    ops: Sequence[Op[T]], may_be_late: Collection[int], patience: float = math.inf
) -> Op[list[T | ShardqError | Left]]:
    """Do as `run_together`, but leave the operations at these indexes that are late, or pause after a failed try.

    An operation is late if a call of it is not answered in *patience* seconds. Closing this ends those, too: nobody has
    been given them yet.
    """
    results: dict[int, Any] = {}
    given: set[int] = set()
    try:
        yield from _run(ops, results, may_be_late, patience)
        given = {at for at, each in results.items() if isinstance(each, Left)}
    finally:
        for at, op in enumerate(ops):
            if at not in given:
                op.close()
    return [results[at] for at in range(len(ops))]


def go_on(left: Left) -> Op[Any]:
    """Run an operation that was left to its end. Return its result, or raise its error."""
    op, step, many = left.op, left.step, left.many
    try:
        while True:
            outcome = yield from _made(step)
            if isinstance(step, Late) and not many:
                (outcome,) = outcome
            step = op.throw(outcome) if isinstance(outcome, Exception) else op.send(outcome)
    except StopIteration as done:
        return done.value
    finally:
        op.close()


def _made(step: Step) -> Op[Any]:
    """Make a step. Return its outcome: the reply, or the failure."""
    try:
        return (yield step)
    except (Refused, Unanswered, Underreplicated) as failure:
        return failure


def _run(ops: Sequence[Op[Any]], results: dict[int, Any], may_be_late: Collection[int], patience: float) -> Op[None]:
    steps: dict[int, Step] = {}
    for at, op in enumerate(ops):
        _advance(at, op, None, steps, results)
    while steps:
        yield from _run_others(ops, steps, results)
        asked = {at: step for at, step in steps.items() if not isinstance(step, Sleep)}
        for part in _parts({at: _calls(step) for at, step in asked.items()}):
            outcomes = yield _batch([asked[at] for at in part], [at in may_be_late for at in part], patience)
            for at in part:
                some, outcomes = outcomes[: len(_calls(asked[at]))], outcomes[len(_calls(asked[at])) :]
                many = isinstance(asked[at], Batch)
                if isinstance(some[0], Late):  # then all are: they go to one node
                    results[at] = Left(ops[at], Late(some[0].pending, tuple([each.at[0] for each in some])), many)
                    del steps[at]
                else:
                    _advance(at, ops[at], some if many else some[0], steps, results)
        if steps and not asked:
            yield from _pause(ops, steps, results, may_be_late)


def _pause(
    ops: Sequence[Op[Any]], steps: dict[int, Any], results: dict[int, Any], may_be_late: Collection[int]
) -> Op[None]:
    """Pause once for all, the longest of their pauses, so that their next calls go out together again."""
    for at in [at for at in steps if at in may_be_late]:
        results[at] = Left(ops[at], steps.pop(at), many=False)
    if steps:
        yield Sleep(max(step.seconds for step in steps.values()))
        for at in list(steps):
            _advance(at, ops[at], None, steps, results)


def _run_others(ops: Sequence[Op[Any]], steps: dict[int, Step], results: dict[int, Any]) -> Op[None]:
    """Run the steps that go in no batch, such as plain commands, one after the other."""
    others = [at for at, step in steps.items() if not isinstance(step, (Call, Batch, Sleep))]
    while others:
        at = others[0]
        try:
            outcome = yield steps[at]
        except (Refused, Unanswered) as failure:
            outcome = failure
        _advance(at, ops[at], outcome, steps, results)
        others = [at for at in others if at in steps and not isinstance(steps[at], (Call, Batch, Sleep))]


def _calls(step: Any) -> Sequence[Sendable]:
    return step.calls if isinstance(step, Batch) else (step,)


def _batch(steps: Sequence[Any], may_be_late: Sequence[bool], patience: float) -> Batch:
    """Return one batch of the calls of all *steps*.

    It lasts until the latest deadline: an operation with an earlier one gives up by itself when its outcome comes.
    """
    calls: list[Sendable] = []
    once: list[int] = []
    late: list[int] = []
    for step, may in zip(steps, may_be_late, strict=True):
        if may:
            late += range(len(calls), len(calls) + len(_calls(step)))
        if isinstance(step, Batch) and step.once:
            once += range(len(calls), len(calls) + len(step.calls))
        calls += _calls(step)
    return Batch(tuple(calls), max(step.until for step in steps), frozenset(once), frozenset(late), patience)


def _parts(calls: Mapping[int, Sequence[Sendable]]) -> list[list[int]]:
    """Return the indexes of *calls*, in parts of at most MAX_KEYS keys; each part takes one round trip."""
    parts: list[list[int]] = []
    room = 0
    for at, some in calls.items():
        keys = sum(len(each.call.keys) for each in some)
        room -= keys
        if room < 0 or not parts:
            parts.append([])
            room = MAX_KEYS - keys
        parts[-1].append(at)
    return parts


def _advance(at: int, op: Op[Any], outcome: Any, steps: dict[int, Step], results: dict[int, Any]) -> None:
    """Send *op* the outcome of its step. Store its next step, or its result if it ended."""
    steps.pop(at, None)
    try:
        steps[at] = op.throw(outcome) if isinstance(outcome, Exception) else op.send(outcome)
    except StopIteration as done:
        results[at] = done.value
    except ShardqError as error:
        results[at] = error
