"""Run several operations at once: their next calls are sent together, in batches of a bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from shardq.errors import ShardqError
from shardq.ops.queue.steps import Batch, Call, Op, Sleep, Step

T = TypeVar("T")
MAX_KEYS = 2000
"""The calls of one round trip declare at most so many keys, since the server serves no other client meanwhile."""


def run_together(ops: Sequence[Op[T]]) -> Op[list[T | ShardqError]]:
    """Run *ops* side by side, in few round trips. Return for each operation its result or the error it raised.

    Their steps may be calls and pauses. Operations that pause do so together, once no other has a call to make. Closing
    this ends all of them.
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
        calls = {at: step for at, step in steps.items() if isinstance(step, Call)}
        pauses = [step.seconds for step in steps.values() if isinstance(step, Sleep)]
        if calls:
            for part in _parts(calls):
                # Until the latest deadline. An operation with an earlier one gives up by itself when its outcome comes.
                outcomes = yield Batch(tuple([calls[at] for at in part]), max(calls[at].until for at in part))
                for at, outcome in zip(part, outcomes, strict=True):
                    _advance(at, ops[at], outcome, steps, results)
        else:
            # One pause for all, the longest, so that their next calls go out together again.
            yield Sleep(max(pauses))
            for at in list(steps):
                _advance(at, ops[at], None, steps, results)
    return [results[at] for at in range(len(ops))]


def _parts(calls: dict[int, Call]) -> list[list[int]]:
    """Return the indexes of *calls*, in parts of at most MAX_KEYS keys; each part takes one round trip."""
    parts: list[list[int]] = []
    room = 0
    for at, call in calls.items():
        room -= len(call.keys)
        if room < 0 or not parts:
            parts.append([])
            room = MAX_KEYS - len(call.keys)
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
