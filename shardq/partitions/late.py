"""Late: messages of calls whose reader did not wait for them.

They go to the reader that waits or reads next, or back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from shardq.errors import BackendError, BackendTimeout, ShardqError
from shardq.model import Received
from shardq.ops.queue.outcome import ignore_failure, outcome_of
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Late, Op, Sleep
from shardq.ops.queue.together import Left, go_on, run_together
from shardq.ops.read.give_back import give_back
from shardq.ops.read.glance import Glance, glance
from shardq.ops.read.waiting import Outstanding
from shardq.partitions.parts import Parts

PATIENCE: Final = 0.25
"""Seconds in which a partition must answer, or the reader continues without it."""

HELD_SECONDS: Final = 1.0
"""Seconds for which messages that came late are kept for a reader."""

PROBE: Final = 1.0
"""Seconds in which a probe must be answered."""

Offer = Callable[[float | None], None]
"""Gives what is held, with leases of that length, to those who wait."""


class HeldMessages(msgspec.Struct):
    """Messages of a partition that came late, with leases of `visibility` seconds."""

    number: int
    visibility: float | None
    rows: list[Received]
    is_over: bool = False


def bring(parts: Parts, number: int, left: Left, visibility: float | None, offer: Offer) -> Op[None]:
    """End a read or a glance that is late. Give away what it brings, and back what nobody wanted for a while."""
    with _mistakes_told(parts, number, parts.away.ended):
        found = yield from outcome_of(go_on(left))
    with parts.lock:
        parts.away.ended(number, found)
        note(parts, number, found)
    if not isinstance(found, list) or not found:
        return
    held = HeldMessages(number, visibility, found)
    with parts.lock:
        parts.held.append(held)
    offer(visibility)
    yield Sleep(HELD_SECONDS)
    if rest := drop(parts, held):
        yield from ignore_failure(give_back(parts.at(number), rest, parts.at(number).until()))


def probe(parts: Parts, number: int) -> Op[None]:
    """Look whether a partition answers again."""
    state = parts.states[number]
    with _mistakes_told(parts, number, parts.away.heard):
        found = yield from outcome_of(glance(state, state.clock.monotonic() + PROBE))
    with parts.lock:
        parts.away.heard(number, found)
        note(parts, number, found)


@contextmanager
def _mistakes_told(parts: Parts, number: int, tell: Callable[[int, object], None]) -> Iterator[None]:
    """Tell of a mistake as of a partition that failed: it is probed, and not left out of reads for ever."""
    try:
        yield
    except Exception as mistake:
        with parts.lock:
            tell(number, BackendError(f"a call that was late failed by {type(mistake).__name__}: {mistake}"))
        raise


def silent(states: Sequence[QueueState], until: float) -> Op[list[int]]:
    """Return the numbers of those partitions that do not answer before local time *until*."""
    seen = yield from run_together([glance(state, until) for state in states])
    return [number for number, each in enumerate(seen) if isinstance(each, BackendTimeout)]


def note(parts: Parts, number: int, found: Glance | list[Received] | ShardqError) -> None:
    """Note what an answer tells of a partition. The caller holds the lock."""
    if isinstance(found, Glance) and found.is_there:
        waiting = max(found.turns, int(found.has_come))
        parts.turns.heard(number, found.quiet, waiting, found.first, found.virtual)
    elif not found or not isinstance(found, list):
        parts.turns.is_empty(number)


def take(parts: Parts, count: int, visibility: float | None) -> dict[int, list[Received]]:
    """Take up to *count* messages of those that are held."""
    rows: dict[int, list[Received]] = {}
    with parts.lock:
        for held in [*parts.held]:
            if count and held.rows and held.visibility == visibility:
                some, held.rows = held.rows[:count], held.rows[count:]
                rows.setdefault(held.number, []).extend(some)
                count -= len(some)
    return rows


def drop(parts: Parts, held: HeldMessages) -> list[Received]:
    """Hold no more of these. Return what is left."""
    with parts.lock:
        rest, held.rows, held.is_over = held.rows, [], True
        if held in parts.held:
            parts.held.remove(held)
    return rest


def offer_to(
    parts: Parts, visibility: float | None, give: Callable[[int, list[Received]], list[Received]]
) -> list[HeldMessages]:
    """Offer what is held to those who wait, whom *give* gives it to. Return what is left of what is held no more."""
    back: list[HeldMessages] = []
    with parts.lock:
        some = [(held, held.rows) for held in parts.held if held.rows and held.visibility == visibility]
        for held, _ in some:
            held.rows = []
    for held, rows in some:
        if rest := give(held.number, rows):
            with parts.lock:
                if held.is_over:
                    back.append(HeldMessages(held.number, visibility, rest, is_over=True))
                else:
                    held.rows = rest + held.rows
    return back


def begun(pending: Any, rows_of: Callable[[Any], list[Received] | None], op: Op[list[Received]]) -> Left:
    """Return the first try of a read that is late, as an operation.

    *rows_of* its end are None if *op* must continue.
    """

    def made() -> Op[list[Received]]:
        (ended,) = yield Late(pending, (0,))
        rows = rows_of(ended)
        return rows if rows is not None else (yield from op)

    pending.outcomes = lambda ended: {0: ended}
    making = made()
    return Left(making, next(making), many=True)


def reads_aside(parts: Parts, wanted: Any, number: int, left: Left, granted: Outstanding | None) -> None:
    """Let a call that is late continue in the background. *granted* is what a read is granted, None of a glance."""
    with parts.lock:
        parts.away.late(number)
    # Its own from now on: the reader may not give back the messages that it is granted. (Another grant may look alike.)
    wanted.granted[:] = [each for each in wanted.granted if each[1] is not granted]
    wanted.aside(bring(parts, number, left, wanted.visibility, wanted.offer))
