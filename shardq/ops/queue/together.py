"""Run several operations at once: their next calls are sent together, in batches of a bounded size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from shardq.errors import ShardqError
from shardq.ops.queue.steps import Batch, Call, Op, Refused, Sendable, Sleep, Step, Unanswered

T = TypeVar("T")
MAX_KEYS = 2000
"""The calls of one round trip declare at most so many keys, since the server serves no other client meanwhile."""


def run_together(ops: Sequence[Op[T]]) -> Op[list[T | ShardqError]]:
    """Run *ops* side by side, in few round trips. Return for each operation its result or the error it raised.

    Calls and batches of them go together, other steps one after the other. Operations that pause do so together, once
    no other has a call to make. Closing this ends all of them.
    """
    try:
        return (yield from _run(ops))
    finally:
        for op in ops:
            op.close()


def _run(ops: Sequence[Op[T]]) -> Op[list[T | ShardqError]]:
    results: dict[int, T | ShardqError] = {}
    steps: dict[int, Step] = {}
    for at, op in enumerate(ops):
        _advance(at, op, None, steps, results)
    while steps:
        yield from _run_others(ops, steps, results)
        asked = {at: step for at, step in steps.items() if not isinstance(step, Sleep)}
        pauses = [step.seconds for step in steps.values() if isinstance(step, Sleep)]
        if asked:
            for part in _parts({at: _calls(step) for at, step in asked.items()}):
                outcomes = yield _batch([asked[at] for at in part])
                for at in part:
                    some, outcomes = outcomes[: len(_calls(asked[at]))], outcomes[len(_calls(asked[at])) :]
                    _advance(at, ops[at], some if isinstance(asked[at], Batch) else some[0], steps, results)
        elif pauses:
            # One pause for all, the longest, so that their next calls go out together again.
            yield Sleep(max(pauses))
            for at in list(steps):
                _advance(at, ops[at], None, steps, results)
    return [results[at] for at in range(len(ops))]


def _run_others(ops: Sequence[Op[T]], steps: dict[int, Step], results: dict[int, T | ShardqError]) -> Op[None]:
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


def _batch(steps: Sequence[Any]) -> Batch:
    """Return one batch of the calls of all *steps*.

    It lasts until the latest deadline: an operation with an earlier one gives up by itself when its outcome comes.
    """
    calls: list[Sendable] = []
    once: list[int] = []
    for step in steps:
        if isinstance(step, Batch) and step.once:
            once += range(len(calls), len(calls) + len(step.calls))
        calls += _calls(step)
    return Batch(tuple(calls), max(step.until for step in steps), frozenset(once))


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


def _advance(at: int, op: Op[T], outcome: Any, steps: dict[int, Step], results: dict[int, T | ShardqError]) -> None:
    """Send *op* the outcome of its step. Store its next step, or its result if it ended."""
    steps.pop(at, None)
    try:
        steps[at] = op.throw(outcome) if isinstance(outcome, Exception) else op.send(outcome)
    except StopIteration as done:
        results[at] = done.value
    except ShardqError as error:
        results[at] = error
