"""read: the messages of those partitions whose turn it is, by one call for each, all at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from shardq.errors import ShardqError
from shardq.model import Received
from shardq.ops.queue.opening import missing, open_queue
from shardq.ops.queue.outcome import ignore_failure, outcome_of
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Batch, Call, Op, Step
from shardq.ops.queue.together import run_together
from shardq.ops.read.acks import Acks, ack_alone, ack_earlier
from shardq.ops.read.give_back import give_back
from shardq.ops.read.glance import Glance, glance
from shardq.ops.read.read import read_now
from shardq.ops.read.waiting import Outstanding
from shardq.partitions.parts import Parts

T = TypeVar("T")
Rows: TypeAlias = dict[int, list[Received]]
"""Messages by the number of the partition that they were read from."""


class Wanted(msgspec.Struct):
    """What a reader wants: up to `count` messages with leases of `visibility` seconds, tried until local time `until`.

    `acks` are done with the first calls, by the number of the partition. `granted` says at each moment what a caller
    that cancels the read must give back.
    """

    count: int
    visibility: float | None
    until: float
    acks: dict[int, Acks] = {}
    granted: dict[int, Outstanding] = {}


def read_turns(parts: Parts, wanted: Wanted) -> Op[Rows]:
    """Return messages that are there; {} if no partition has any, each of which was asked.

    A partition that fails leaves the others what they have; only if nothing came, its error is raised. If an ack fails,
    what came goes back, and its error is raised.
    """
    began, turns, failed = parts.states[0].clock.monotonic(), parts.turns, list[ShardqError]()
    yield from _look(parts, turns.to_glance(), wanted.until, failed)
    rows: Rows = {}
    count, among = wanted.count, None
    while True:
        with parts.lock:
            stay = next(iter(wanted.acks)) if count == len(wanted.acks) == 1 else None
            dealt = turns.deal(count, stay, among)
        if dealt or wanted.acks:
            some = yield from _read(parts, wanted, dealt, failed)
            for number, each in some.items():
                rows[number] = rows.get(number, []) + each
            count = wanted.count - sum(map(len, rows.values()))
            # Others had no more than they gave.
            among = [number for number, asked in dealt.items() if len(some.get(number, ())) == asked]
        if rows and not (dealt and count and among):
            return rows
        if not rows:
            among, unheard = None, turns.unheard(began)
            yield from _look(parts, unheard, wanted.until, failed)
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


def _read(parts: Parts, wanted: Wanted, dealt: Mapping[int, int], failed: list[ShardqError]) -> Op[Rows]:
    """Read as many messages of each partition as were *dealt*, and ack what the reader acks, all at once."""
    acks, wanted.acks = wanted.acks, {}
    numbers = [*dealt, *(number for number in acks if number not in dealt)]
    ops = [_read_one(parts, number, dealt.get(number, 0), wanted, acks.get(number)) for number in numbers]
    found = [(yield from outcome_of(ops[0]))] if len(ops) == 1 else (yield from run_together(ops))
    rows: Rows = {}
    with parts.lock:
        for number, each in zip(numbers, found, strict=True):
            got, count = 0 if isinstance(each, ShardqError) else len(each), dealt.get(number, 0)
            parts.turns.left(number, count - got)
            if isinstance(each, ShardqError):
                failed.append(each)
            elif each:
                rows[number] = each
            if not count:
                parts.turns.forget(number)  # the ack may have made room there
            elif not got:
                parts.turns.is_empty(number)
    lost = [
        each
        for number, each in zip(numbers, found, strict=True)
        if isinstance(each, ShardqError) and number in acks and is_open(acks[number])
    ]
    if lost:
        yield from _return(parts, rows, wanted.until)
        raise lost[0]
    return rows


def _read_one(parts: Parts, number: int, count: int, wanted: Wanted, acks: Acks | None) -> Op[list[Received]]:
    """Read from one partition; if nothing was dealt there, only ack."""
    state = parts.at(number)
    if not count:
        return _ack(state, cast("Acks", acks), wanted.until)
    wanted.granted[number] = Outstanding()
    op = read_now(state, count, wanted.visibility, wanted.until, wanted.granted[number], acks)
    return _noting(op, parts, number)


def _ack(state: QueueState, acks: Acks, until: float) -> Op[list[Received]]:
    yield from open_queue(state, until)
    yield from ack_earlier(state, acks, until)
    yield from ack_alone(state, acks, until)
    return []


def is_open(acks: Acks) -> bool:
    """Return whether a delivery has no answer."""
    return any(each.token not in acks.results for part in (*acks.earlier, acks.last) for _, _, each in part)


def _return(parts: Parts, rows: Rows, until: float) -> Op[None]:
    """Give back, uncounted, what was read for a reader that gets an error."""
    for number, some in rows.items():
        with parts.lock:
            parts.turns.left(number, len(some))
        yield from ignore_failure(give_back(parts.at(number), some, until))


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
