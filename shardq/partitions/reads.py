"""read: the messages of those partitions whose turn it is, by one call for each, all at once."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

from shardq.errors import BackendError, BackendTimeout, QueueMissing, ShardqError
from shardq.model import Received
from shardq.ops.queue.opening import missing, open_queue
from shardq.ops.queue.outcome import ignore_failure
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Batch, Call, Op, Sleep, Step
from shardq.ops.queue.together import Left, run_patiently
from shardq.ops.read.acks import Acks, ack_alone, ack_earlier
from shardq.ops.read.give_back import give_back, give_back_all
from shardq.ops.read.glance import Glance, glance
from shardq.ops.read.look import Look, fast_read
from shardq.ops.read.read import read, read_now
from shardq.ops.read.waiting import Outstanding
from shardq.partitions.late import PATIENCE, Offer, begun, note, probe, reads_aside, take
from shardq.partitions.parts import Parts
from shardq.partitions.turns import FRESH_SECONDS, NOTHING, DealtRead

T = TypeVar("T")
Rows: TypeAlias = dict[int, list[Received]]
"""Messages by the number of the partition that they were read from."""

TICK: Final = 0.01
"""Seconds between two looks of a reader that has nothing, at what calls bring that are late."""


class WantedRead(msgspec.Struct):
    """A reader's request: up to `count` messages with leases of `visibility` seconds, tried until local time `until`.

    If it `waits`, it is a blocked read, which learns at once that nothing is there. `aside` runs an operation in the
    background, and `offer` gives what came late to those who wait. `acks` are done with the first calls, by the number
    of the partition. `granted` says at each moment what a caller that cancels the read must give back.

    The messages `dealt` to each partition count as asked for there. The looks that `first_look` has begun are in
    `glances` and `dealt`, and in `first`, which continues where it was dealt.
    """

    count: int
    visibility: float | None
    until: float
    waits: bool
    aside: Callable[[Op[Any]], object]
    offer: Offer
    acks: dict[int, Acks] = {}
    granted: list[tuple[int, Outstanding]] = []
    glances: list[int] | None = None
    dealt: dict[int, DealtRead] | None = None
    first: Op[list[Received]] | None = None

    def begin(self) -> None:
        """Begin again, by another map."""
        self.glances = self.dealt = self.first = None


def read_turns(parts: Parts, wanted: WantedRead) -> Op[Rows]:
    """Return messages that are there; {} if no partition has any; each one was asked, but those that are away.

    A partition that fails leaves the others what they have. If an ack fails, the messages go back, and its error is
    raised. Without a message, an error is raised if all partitions fail, or if one fails for good.
    """
    clock, turns, failed = parts.states[0].clock, parts.turns, list[ShardqError]()
    began = clock.monotonic()
    _probe(parts, wanted)
    glances, wanted.glances = wanted.glances, None
    yield from _look(parts, turns.to_glance() if glances is None else glances, wanted, failed)
    rows: Rows = {}
    count, among = wanted.count, None
    while True:
        dealt = wanted.dealt
        if parts.held and not (wanted.acks or dealt):
            _add(rows, held := take(parts, count, wanted.visibility))
            wanted.granted += [(number, Outstanding(rows=each)) for number, each in held.items()]
            count = wanted.count - sum(map(len, rows.values()))
        with parts.lock:
            stay = next(iter(wanted.acks)) if count == len(wanted.acks) == 1 else None
            dealt = wanted.dealt = dealt or turns.deal(count, stay, among)
        if dealt or wanted.acks:
            some = yield from _read(parts, wanted, dealt, failed)
            _add(rows, some)
            count = wanted.count - sum(map(len, rows.values()))
            # Others had no more than they gave.
            among = [number for number, asked in dealt.items() if len(some.get(number, ())) == asked.messages]
            if rows and count and not among and (unheard := turns.unheard(clock.monotonic() - FRESH_SECONDS)):
                # One tenant that waits is dealt all that is wanted, whatever others may have.
                yield from _look(parts, unheard, wanted, failed)
                among = unheard
        if rows and not (dealt and count and among):
            return rows
        if not rows:
            among, unheard = None, turns.unheard(began)
            yield from _look(parts, unheard, wanted, failed)
            if not (dealt or unheard or (yield from _comes_late(parts, wanted, failed))):
                return {}


def first_look(parts: Parts, wanted: WantedRead, timeout: float | None) -> tuple[int, Look] | None:
    """Return the first try of a read of one, and its partition, if it is one call; None if `read_turns` must begin."""
    acks = wanted.acks
    if wanted.count > 1 or parts.held or parts.away.numbers or len(acks) > 1:
        return None
    stay = next(iter(acks), None)
    with parts.lock:
        if glances := parts.turns.to_glance():
            wanted.glances = glances
            return None
        wanted.dealt = dealt = parts.turns.deal(1, stay)
    number = next(iter(dealt), None)
    if number is None or (stay is not None and stay != number):
        return None
    granted, visibility = Outstanding(), wanted.visibility
    wanted.granted.append((number, granted))
    acked, due = acks.get(number), dealt[number].due
    look = fast_read(parts.states[number], 1, 0.0, visibility, None, timeout, granted, acked, alone=True, due=due)
    return None if look is None else (number, look)


def looked(
    parts: Parts, wanted: WantedRead, number: int, look: Look, rows: list[Received] | None
) -> list[Received] | None:
    """Note what a first try tells. Return its messages; None if its call must continue, by `read_turns`."""
    if rows is None:
        wanted.first = _rest(parts, wanted, number, look)
        return None
    reply = look.outcome if look.acks is None else look.outcome[1]
    with parts.lock:
        parts.turns.heard(number, *_told(reply))
        parts.turns.answered(number, _dealt(wanted, number))
        if not rows:
            parts.turns.is_empty(number)
    if not rows:
        wanted.dealt, wanted.acks = None, {}
    return rows


def late_look(
    parts: Parts,
    wanted: WantedRead,
    number: int,
    look: Look,
    pending: Any,
    rows_of: Callable[[Any], list[Received] | None],
) -> None:
    """Let a first try that is late continue in the background.

    *rows_of* its end are its messages; None: it must continue.
    """
    left = begun(pending, rows_of, _rest(parts, wanted, number, look))
    with parts.lock:
        parts.turns.answered(number, _dealt(wanted, number))
    wanted.dealt = None
    reads_aside(parts, wanted, number, left, wanted.granted[-1][1])


def _dealt(wanted: WantedRead, number: int) -> DealtRead:
    return (wanted.dealt or {}).get(number, NOTHING)


def let_go(parts: Parts, wanted: WantedRead) -> list[Op[None]]:
    """Return what gives back all that a read was granted which is cancelled."""
    with parts.lock:
        for number, dealt in (wanted.dealt or {}).items():
            parts.turns.answered(number, dealt)
    granted = [(parts.at(number), each) for number, each in wanted.granted if each.holder or each.rows]
    return [give_back_all(state, each, state.until()) for state, each in granted]


def _rest(parts: Parts, wanted: WantedRead, number: int, look: Look) -> Op[list[Received]]:
    """Return the operation that continues after the first try of a read."""
    state, made = parts.at(number), look if look.made else None
    _, granted = wanted.granted[-1]
    return read(state, 1, 0.0, wanted.visibility, outstanding=granted, acks=look.acks, made=made)


def _add(rows: Rows, some: Rows) -> None:
    for number, each in some.items():
        rows[number] = rows.get(number, []) + each


def _probe(parts: Parts, wanted: WantedRead) -> None:
    """Begin to probe those partitions that failed, and whose time has come."""
    if parts.away.numbers:
        with parts.lock:
            numbers = parts.away.to_probe()
        for number in numbers:
            wanted.aside(probe(parts, number))


def _comes_late(parts: Parts, wanted: WantedRead, failed: Sequence[ShardqError]) -> Op[bool]:
    """Wait a little for calls that are late, and return whether the reader is to look again. Nobody else has anything.

    Raise what has failed for good, or what went wrong if all partitions fail.
    """
    away, now = parts.away, parts.states[0].clock.monotonic()
    if not away.numbers and not failed:
        return False
    if away.is_late and not wanted.waits and now < wanted.until + PATIENCE:
        yield Sleep(TICK)
        return True
    error = next((each for each in failed if not isinstance(each, BackendError)), None) or away.failure
    if error is not None:
        raise error
    if len(away.numbers) == len(parts.states) and not wanted.waits:
        raise BackendTimeout(f"no partition of queue {parts.states[0].keys.name!r} answered in time")
    return False


def _look(parts: Parts, numbers: Iterable[int], wanted: WantedRead, failed: list[ShardqError]) -> Op[None]:
    """Glance at these partitions."""
    numbers = list(numbers)
    if not numbers:
        return
    ops = [glance(parts.states[number], wanted.until) for number in numbers]
    seen = yield from run_patiently(ops, _may_be_late(parts, numbers), PATIENCE)
    for number, each in zip(numbers, seen, strict=True):
        if isinstance(each, Left):
            reads_aside(parts, wanted, number, each, None)
            continue
        with parts.lock:
            _note(parts, number, each)
            note(parts, number, each)
        if not isinstance(each, Glance):
            failed.append(each)
        elif not each.is_there and not _is_drained(parts, number, gone := missing(parts.states[number])):
            failed.append(gone)


def _is_drained(parts: Parts, number: int, error: ShardqError) -> bool:
    """Return whether *error* says that a partition is gone that was drained: the map names it for a moment longer."""
    return isinstance(error, QueueMissing) and number >= parts.map.written


def _may_be_late(parts: Parts, numbers: Sequence[int], acks: Container[int] = ()) -> list[int]:
    """Return which of these calls may be late: all that ack nothing, unless all partitions are away already."""
    if len(parts.away.numbers) == len(parts.states):
        return []
    return [at for at, number in enumerate(numbers) if number not in acks]


def _note(parts: Parts, number: int, outcome: object) -> None:
    if parts.away.numbers or isinstance(outcome, BackendError):
        parts.away.heard(number, outcome)


def _read(parts: Parts, wanted: WantedRead, dealt: Mapping[int, DealtRead], failed: list[ShardqError]) -> Op[Rows]:
    """Read as many messages of each partition as were *dealt*, and ack what the reader acks, all at once."""
    acks, wanted.acks = wanted.acks, {}
    numbers = [*dealt, *(number for number in acks if number not in dealt)]
    ops = [_read_one(parts, number, dealt.get(number, NOTHING), wanted, acks.get(number)) for number in numbers]
    latest = dict(wanted.granted)
    found = yield from run_patiently(ops, _may_be_late(parts, numbers, acks), PATIENCE)
    rows: Rows = {}
    wanted.dealt = None
    for number, each in zip(numbers, found, strict=True):
        with parts.lock:
            parts.turns.answered(number, dealt.get(number, NOTHING))
        if isinstance(each, Left):
            reads_aside(parts, wanted, number, each, latest[number])
            continue
        with parts.lock:
            _note(parts, number, each)
            if isinstance(each, ShardqError):
                if not _is_drained(parts, number, each):
                    failed.append(each)
            elif each:
                rows[number] = each
            if number not in dealt:
                parts.turns.forget(number)  # the ack may have made room there
            elif isinstance(each, ShardqError) or not each:
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


def _read_one(parts: Parts, number: int, dealt: DealtRead, wanted: WantedRead, acks: Acks | None) -> Op[list[Received]]:
    """Read from one partition; if nothing was dealt there, only ack."""
    state = parts.at(number)
    if not dealt.messages:
        return _ack(state, cast("Acks", acks), wanted.until)
    if wanted.first is not None:
        first, wanted.first = wanted.first, None
        return _noting(first, parts, number)
    granted = Outstanding()
    wanted.granted.append((number, granted))
    op = read_now(state, dealt.messages, wanted.visibility, wanted.until, granted, acks, dealt.due)
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
    """Give back, uncounted, messages that were read for a reader that gets an error."""
    for number, some in rows.items():
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


def _numbers(step: Step, outcome: Any) -> tuple[int, int, int, int] | None:
    """Return what the answer to a read tells of turns, which may be the last call of a batch."""
    if isinstance(step, Batch) and not isinstance(outcome, Exception):
        step, outcome = step.calls[-1].call, outcome[-1]
    is_read = isinstance(step, Call) and step.script.name == "read" and not isinstance(outcome, Exception)
    return _told(outcome) if is_read else None


def _told(reply: Sequence[Any]) -> tuple[int, int, int, int]:
    """Return the messages, the turns, the first score and the virtual time in the *reply* to a read."""
    return int(reply[8]), int(reply[9]), int(reply[10]), int(reply[11])
