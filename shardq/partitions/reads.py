"""read: the messages of those partitions whose turn it is, by one call for each, all at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from shardq.errors import ShardqError
from shardq.model import Received
from shardq.ops.queue.opening import missing
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.steps import Batch, Call, Op, Step
from shardq.ops.queue.together import run_together
from shardq.ops.read.glance import Glance, glance
from shardq.ops.read.read import read_now
from shardq.ops.read.waiting import Outstanding
from shardq.partitions.parts import Parts

T = TypeVar("T")
Rows: TypeAlias = dict[int, list[Received]]
"""Messages by the number of the partition that they were read from."""

Granted: TypeAlias = dict[int, Outstanding]
"""What a read that is cancelled must give back, by the number of the partition."""


def read_turns(parts: Parts, count: int, visibility: float | None, until: float, granted: Granted) -> Op[Rows]:
    """Return up to *count* messages that are there; {} if no partition has any, each of which was asked.

    *granted* says at each moment what a caller that cancels this must give back. A partition that fails leaves the
    others what they have; only if nothing came, its error is raised.
    """
    began, turns, failed = parts.states[0].clock.monotonic(), parts.turns, list[ShardqError]()
    yield from _look(parts, turns.to_glance(), until, failed)
    while True:
        with parts.lock:
            dealt = turns.deal(count)
        if dealt and (rows := (yield from _read(parts, dealt, visibility, until, granted, failed))):
            return rows
        unheard = turns.unheard(began)
        yield from _look(parts, unheard, until, failed)
        if not (dealt or unheard):
            if failed:
                raise failed[0]
            return {}


def _look(parts: Parts, numbers: Iterable[int], until: float, failed: list[ShardqError]) -> Op[None]:
    """Glance at these partitions."""
    numbers = list(numbers)
    if not numbers:
        return
    seen = yield from run_together([glance(parts.states[number], until) for number in numbers])
    with parts.lock:
        for number, each in zip(numbers, seen, strict=True):
            if isinstance(each, Glance) and each.is_there:
                parts.turns.heard(number, each.quiet, max(each.turns, int(each.has_come)))
            else:
                parts.turns.is_empty(number)
                failed.append(missing(parts.states[number]) if isinstance(each, Glance) else each)


def _read(
    parts: Parts,
    dealt: Mapping[int, int],
    visibility: float | None,
    until: float,
    granted: Granted,
    failed: list[ShardqError],
) -> Op[Rows]:
    """Read as many messages of each partition as were *dealt*."""
    ops: list[Op[list[Received]]] = []
    for number, count in dealt.items():
        granted[number] = Outstanding()
        op = read_now(parts.states[number], count, visibility, until, granted[number])
        ops.append(_noting(op, parts, number))
    found = [(yield from outcome_of(ops[0]))] if len(ops) == 1 else (yield from run_together(ops))
    rows: Rows = {}
    with parts.lock:
        for (number, count), each in zip(dealt.items(), found, strict=True):
            got = 0 if isinstance(each, ShardqError) else len(each)
            parts.turns.left(number, count - got)
            if isinstance(each, ShardqError):
                failed.append(each)
            elif each:
                rows[number] = each
            if not got:
                parts.turns.is_empty(number)
    return rows


def _noting(op: Op[T], parts: Parts, number: int) -> Op[T]:
    """Run *op*, and note what the answers to its reads tell of the partition."""
    outcome: Any = None
    try:
        while True:
            step = op.throw(outcome) if isinstance(outcome, Exception) else op.send(outcome)
            try:
                outcome = yield step
            except Exception as failure:  # noqa: BLE001 (the operation knows what it means)
                outcome = failure
            if told := _numbers(step, outcome):
                with parts.lock:
                    parts.turns.heard(number, *told)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        op.close()


def _numbers(step: Step, outcome: Any) -> tuple[int, int] | None:
    """Return the two numbers in the answer to a read, which may be the last call of a batch."""
    if isinstance(step, Batch) and not isinstance(outcome, Exception):
        step, outcome = step.calls[-1].call, outcome[-1]
    is_read = isinstance(step, Call) and step.script.name == "read" and not isinstance(outcome, Exception)
    return (int(outcome[8]), int(outcome[9])) if is_read else None
