"""Store rows in bulk, each once, however often the work is begun again: by another try, process or day.

The n-th row of a partition is known by its number alone. Redis keeps for each partition how many of its rows are
stored, and changes that number in the script that stores them; so a copy of the writer, a replay of it and one that
cuts its rows into other chunks all store what is missing and nothing else. A mark of the last stored row tells a replay
of the same rows from other rows under the same name.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from shardq.errors import BackendTimeout, ConfigError, DurabilityUnknown, OutcomeUnknown, QueueFull
from shardq.ops.opening import reopen, upkeep
from shardq.ops.outgoing import CHUNK_BYTES, CHUNK_CHOICES, CHUNK_MESSAGES
from shardq.ops.retry import TRANSIENT, pause_after, refuse, retry_until
from shardq.ops.state import QueueState
from shardq.ops.steps import Argument, Batch, Call, Op, Refused, Sleep, Unanswered, Underreplicated
from shardq.ops.write import call_of, positions_of

BOUNDS = frozenset({"backlog", "max_len", "max_backlog", "max_dedup"})
"""Why a queue may take no more for now."""

AFTERMATH = 2 * 3600
"""Seconds for which a write is remembered that is complete: as long as a producer sequence at least."""


class Rows(msgspec.Struct, frozen=True):
    """Messages that were checked and encoded, in columns; no `headers` and `options` where no row has any.

    `options` are as `write.lua` takes them; `keyed` says whether any holds a dedup key.
    """

    shard_keys: Sequence[str | bytes]
    tag: str
    bodies: Sequence[bytes]
    headers: Sequence[bytes] = ()
    options: Sequence[str] = ()
    keyed: bool = False

    def __len__(self) -> int:
        """How many rows."""
        return len(self.bodies)

    def mark(self, at: int) -> str:
        """What tells row *at* from others: a checksum."""
        key = self.shard_keys[at]
        raw = key.encode() if isinstance(key, str) else key
        return f"{zlib.crc32(self.bodies[at], zlib.crc32(raw)):x}"


@dataclass(slots=True)
class BulkOffset:
    """How far one partition of a bulk write is: `stored` rows, of which the last has that `mark`.

    `write_id` and `partition` name it, `batch` counts up when the same write goes on with more rows (a micro-batch).
    The offset of a batch takes the place of the one before: whoever begins a batch has seen all partitions of the one
    before stored, so nobody needs that again but a copy of its writer that should have stopped, and that is refused.
    So a stream costs a field per partition however long it runs. Redis remembers it for `remember` seconds after its
    last call; `unheard` is the local time of the first call since the last answer that may have stored rows.
    """

    write_id: str
    partition: str
    batch: int = 0
    remember: float = 7 * 86_400
    stored: int = 0
    mark: str = ""
    unanswered_since: float = math.inf

    @property
    def field(self) -> str:
        """The field of the hash `dedup` in which Redis remembers it."""
        return f"o:{self.write_id}:{self.partition}"

    def update(self, batch: int, stored: int, mark: str) -> None:
        """Redis says how far it is. ConfigError if others went this far, or a later batch was begun."""
        if batch > self.batch:
            raise _overtaken(self, batch)
        if batch == self.batch and stored == self.stored and mark != self.mark:
            raise _different_rows(self)
        self.stored, self.mark = (stored, mark) if batch == self.batch else (0, "")


@dataclass(frozen=True, slots=True)
class Pace:
    """How rows are sent: so many in a call, so many calls in a round trip; and when to wait.

    While the queue has `max_backlog` messages (0: whatever its own bounds say) the writer waits, up to `patience`
    seconds without being able to store anything.
    """

    chunk: int = CHUNK_MESSAGES
    calls: int = 8
    max_backlog: int = 0
    patience: float = 600.0


def store_rows(state: QueueState, offset: BulkOffset, first: int, rows: Rows, pace: Pace) -> Op[None]:
    """Store the rows *first*, *first* + 1, ... of a partition: those that are not stored yet.

    ConfigError when other rows were stored under this name; QueueFull after `patience`; BackendTimeout, BackendError.
    """
    until, full_until = state.until(), state.clock.monotonic() + pace.patience
    size, tries = pace.chunk, 0
    while (at := _next(offset, first, rows)) < len(rows):
        trouble = yield from _send_calls(state, offset, first, rows, pace, (at, size), until)
        now = state.clock.monotonic()
        if _next(offset, first, rows) > at:
            until, full_until, tries = state.until(), now + pace.patience, 0
            size = min(pace.chunk, size * 2)
        if trouble == "EPOCH":
            yield from reopen(state, until)
        elif trouble == "max_bulk_offsets":
            raise _too_many(state, offset)
        elif trouble:
            size = max(1, size // 4) if trouble in BOUNDS else size
            if now > (full_until if trouble in BOUNDS else until):
                raise _give_up_error(state, trouble, pace)
            tries += 1
            yield Sleep(pause_after(tries))
    yield from upkeep(state, state.clock.monotonic())


def _send_calls(
    state: QueueState, offset: BulkOffset, first: int, rows: Rows, pace: Pace, where: tuple[int, int], until: float
) -> Op[str]:
    """One round trip; what went wrong, if anything did."""
    if pace.max_backlog and not (yield from _has_room(state, pace, until)):
        return "backlog"
    spans = _spans(state, rows, *where, pace.calls)
    calls = tuple(_call(state, offset, first, rows, at, to) for at, to in spans)
    trouble, underreplicated, sent_at = "", None, state.clock.monotonic()
    _check_memory(offset, sent_at)
    for (_, to), outcome in zip(spans, (yield Batch(calls, until)), strict=True):
        if isinstance(outcome, Unanswered):
            offset.unanswered_since = min(offset.unanswered_since, sent_at) if outcome.sent else offset.unanswered_since
        before, reply = offset.stored, outcome.reply if isinstance(outcome, Underreplicated) else outcome
        if isinstance(reply, list) and reply[0] == b"OK":
            offset.stored, offset.mark = first + to, rows.mark(to - 1)
        else:
            trouble = _trouble(offset, reply) or trouble
        if isinstance(reply, list):
            offset.unanswered_since = math.inf
        if isinstance(outcome, Underreplicated) and offset.stored > before:
            underreplicated = outcome
    if underreplicated is not None:
        raise DurabilityUnknown(f"rows were stored, but {underreplicated.explain(state.durability.replicas)}", None)
    return trouble


def _trouble(offset: BulkOffset, outcome: Any) -> str:
    """What an outcome other than OK means; '' when it only says how far the batch is. Raises what does not pass."""
    match outcome:
        case [b"COUNTED", batch, stored, mark]:
            offset.update(int(batch), int(stored), mark.decode())
            return ""
        case [b"FULL", bound, *_]:
            return str(bound.decode())
        case [word, *_]:
            return str(word.decode())
        case Refused() if outcome.code in TRANSIENT:
            return outcome.code
        case Refused():
            refuse(outcome)
    return str(outcome)


def _check_memory(offset: BulkOffset, now: float) -> None:
    """OutcomeUnknown when rows may be stored that Redis may have forgotten: sent again they could be stored twice."""
    if now - offset.unanswered_since > offset.remember:
        raise OutcomeUnknown(
            f"rows of partition {offset.partition} of write id {offset.write_id!r} may be stored: no answer came for "
            f"longer than the {offset.remember:,g} s for which Redis remembers them"
        )


def _give_up_error(state: QueueState, trouble: str, pace: Pace) -> QueueFull | BackendTimeout:
    name = state.keys.name
    if trouble in BOUNDS:
        return QueueFull(
            f"queue {name!r} took no more rows for {pace.patience:g} s, since it is full ({trouble}): let workers "
            "drain it, or raise the bound; the same write id goes on where this stopped"
        )
    return BackendTimeout(
        f"Redis stored no rows of queue {name!r} for {state.timeout:g} s ({trouble}); the same write id goes on where "
        "this stopped"
    )


def _too_many(state: QueueState, offset: BulkOffset) -> QueueFull:
    """Waiting would not help: workers drain messages, not what is remembered for days."""
    return QueueFull(
        f"queue {state.keys.name!r} remembers max_bulk_offsets = {state.config.max_bulk_offsets:,} partitions of bulk "
        f"writes, so partition {offset.partition} of write id {offset.write_id!r} was not begun: give the batches of a "
        "stream one write id and each its number (batchId), write fewer partitions, remember them for less time, or "
        "raise the bound; the same write id then stores what is missing"
    )


def finish(offset: BulkOffset, rows: int) -> None:
    """ConfigError when an earlier try stored more rows than the *rows* that there are now: they were others."""
    if offset.stored > rows:
        raise _different_rows(offset)


def complete(state: QueueState, offsets: Sequence[BulkOffset]) -> Op[None]:
    """All rows of a write are stored, and nobody will begin it again: remember its *offsets* for `AFTERMATH` only.

    That is for copies of its writers that may still run. A write that is begun again, or goes on with another batch,
    must not call this. BackendTimeout, BackendError: then they are remembered for as long as was said.
    """
    for at in range(0, len(offsets), 1000):
        fields = [offset.field for offset in offsets[at : at + 1000]]
        call = Call.on(state.keys, "complete", (AFTERMATH * 1000, *fields))
        yield from retry_until(lambda _, call=call: call, state.until(), state.clock)  # type: ignore[misc]


def _next(offset: BulkOffset, first: int, rows: Rows) -> int:
    """Which of *rows* is the next to store; makes sure that what is stored already are these rows."""
    at = offset.stored - first
    if at < 0:
        raise BackendTimeout(
            f"rows up to {first:,} of partition {offset.partition} were stored, but Redis knows only of "
            f"{offset.stored:,}: it lost what it had, or this write paused for longer than it is remembered; begin anew"
        )
    if 0 < at <= len(rows) and offset.mark and offset.mark != rows.mark(at - 1):
        raise _different_rows(offset)
    return at


def _overtaken(offset: BulkOffset, batch: int) -> ConfigError:
    return ConfigError(
        f"batch {offset.batch:,} of write id {offset.write_id!r} comes after batch {batch:,} of it, so nothing of it "
        "was stored now: either another run went on with this write, and this one is to stop; or its batches are "
        "counted from the beginning again, as after a deleted checkpoint: then it needs a new write id"
    )


def _different_rows(offset: BulkOffset) -> ConfigError:
    return ConfigError(
        f"row {offset.stored - 1:,} of partition {offset.partition} is not the one that an earlier try of this write "
        f"stored there: under one write id ({offset.write_id!r}) the same rows must come in the same order and "
        "partitions; sort them, or use a dedup_key column and a new write id"
    )


def _has_room(state: QueueState, pace: Pace, until: float) -> Op[bool]:
    """Whether the queue has less than the most messages that it is to have."""
    if not pace.max_backlog:
        return True
    (length,) = yield Batch((Call.on(state.keys, "len"),), until)
    return not isinstance(length, int) or length < pace.max_backlog


def _spans(state: QueueState, rows: Rows, at: int, size: int, calls: int) -> list[tuple[int, int]]:
    """The next chunks from *at* on: their first row, and the one after their last."""
    found: list[tuple[int, int]] = []
    most = max(1, min(size, CHUNK_CHOICES // state.choices))
    while at < len(rows) and len(found) < calls:
        to = _end(rows, at, min(len(rows), at + most))
        found.append((at, to))
        at = to
    return found


def _end(rows: Rows, at: int, to: int) -> int:
    """Where the chunk that begins at *at* ends, so that no call grows large: not after *to*."""
    bodies = rows.bodies[at:to]
    if sum(map(len, bodies)) <= CHUNK_BYTES:
        return to
    size = 0
    for count, body in enumerate(bodies):
        size += len(body)
        if size > CHUNK_BYTES:
            return at + max(1, count)
    return to


def _call(state: QueueState, offset: BulkOffset, first: int, rows: Rows, at: int, to: int) -> Call:
    keys, view = rows.shard_keys[at:to], state.view
    numbers, positions = positions_of(view, keys)
    columns: list[Sequence[Any]] = [positions, keys, [rows.tag] * (to - at), rows.bodies[at:to]]
    if rows.headers or rows.options:
        blank = [b""] * (to - at)
        columns += [rows.headers[at:to] or blank, rows.options[at:to] or blank]
    args: list[Argument] = [b""] * (len(columns) * (to - at))
    for position, column in enumerate(columns):
        args[position :: len(columns)] = column
    before = rows.mark(at - 1) if at else offset.mark
    sequence = f"{offset.batch}|{first + at}|{first + to}|{round(offset.remember * 1000)}|{before}|{rows.mark(to - 1)}"
    sequence = f"{sequence}|{state.config.max_bulk_offsets}"
    keyed = sum(1 for text in columns[5] if not text.endswith("|")) if rows.keyed else 0
    return call_of(state, view, offset.field, sequence, numbers, to - at, args, keyed)
