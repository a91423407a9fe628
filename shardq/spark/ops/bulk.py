"""Store the rows of a bulk write, each once, however often the write is started again.

A row is identified by its partition and its number in that partition. Redis keeps for each partition how many of its
rows are stored, and the script that stores rows changes this number. So a second copy of the writer, a later replay, or
a writer that cuts the rows into other chunks stores only the rows that are missing. Redis also keeps a checksum of all
rows that are stored, the mark. It shows whether a writer with the same write id brings the same rows.

If Redis forgets this while messages stay, a second try cannot tell what is stored. The write says when it began, and
the script refuses to begin a partition if offsets may have been lost since then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

from shardq.errors import BackendTimeout, ConfigError, DurabilityUnknown, OutcomeUnknown, QueueFull
from shardq.ops.queue.retry import TRANSIENT, always, refuse, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Batch, Call, Op, Refused, Unanswered, Underreplicated
from shardq.ops.queue.upkeep import upkeep
from shardq.spark.ops.checksum import Checksum
from shardq.spark.ops.rows import RowPace, Rows, Tries, give_up_error, has_room, rows_call, spans_of

RESUMABLE = "the same write id then stores what is missing"
LOST_OFFSETS = "Redis has lost what it knew"
"""So an error begins after which the same write id would store rows twice."""

REMEMBER_COMPLETE = 2 * 3600
"""Seconds for which Redis remembers a complete write: at least as long as a producer sequence."""


@dataclass(slots=True)
class BulkOffset:
    """How far one partition of a bulk write is: `stored` rows are in Redis, and all of them together have the `mark`.

    `write_id` and `partition` name it. `batch` counts up when the same write continues with more rows (a micro-batch).
    The offset of a new batch replaces that of the one before, because a batch begins only when all partitions of the
    batch before are stored. So an endless write costs one field per partition. A writer of an earlier batch that still
    runs is refused. Redis remembers the offset for `remember` seconds after its last call. `began` is when the write
    began, in ms of the server's clock; with 0 nobody notices it if Redis loses offsets between two tries.

    `unanswered_since` is the local time of the first call that may have stored rows without an answer. A later answer
    sets it to infinity. `own` is the checksum of this writer's rows, by which it sees whether `mark` is of the same.
    """

    write_id: str
    partition: str
    batch: int = 0
    remember: float = 7 * 86_400
    began: int = 0
    stored: int = 0
    mark: str = ""
    unanswered_since: float = math.inf
    own: Checksum = dataclass_field(default_factory=Checksum)

    @property
    def field(self) -> str:
        """The field of the hash `:dedup` in which Redis remembers this offset."""
        return f"o:{self.write_id}:{self.partition}"

    def update(self, batch: int, stored: int, mark: str) -> None:
        """Note how far Redis says the write is. ConfigError if it stored other rows, or a later batch has begun."""
        if batch > self.batch:
            raise ConfigError(
                f"batch {self.batch:,} of write id {self.write_id!r} comes after batch {batch:,} of it, so nothing of "
                "it was stored now: if another run continues this write, stop this one; if its batches are counted "
                "from 0 again, as after a deleted checkpoint, use a new write id"
            )
        if batch == self.batch and stored == self.stored and mark != self.mark:
            raise _different_rows(self)
        self.stored, self.mark = (stored, mark) if batch == self.batch else (0, "")

    def mark_of(self, first: int, rows: Rows, at: int) -> str:
        """Return the mark of a partition whose last row is the one before *at* of *rows*, which begin with *first*."""
        return self.own.upto(first, rows.shard_keys, rows.bodies, at)

    def is_of(self, first: int, rows: Rows, at: int) -> bool:
        """Whether the stored rows up to the one before *at* are these and those before them."""
        if Checksum.made(self.mark):
            return self.mark == self.mark_of(first, rows, at)
        return not at or self.mark == rows.mark(at - 1)


def store_rows(state: QueueState, offset: BulkOffset, first: int, rows: Rows, pace: RowPace) -> Op[None]:
    """Store the rows *first*, *first* + 1, ... of a partition that are not stored yet.

    ConfigError if other rows were stored under this write id. QueueFull if the queue stayed full for `patience`
    seconds. Also BackendTimeout, OutcomeUnknown, DurabilityUnknown and other BackendErrors.
    """
    tries = Tries(state, pace)
    offset.own.begin(first)
    while (at := _next(offset, first, rows)) < len(rows):
        trouble = yield from _send_calls(state, offset, first, rows, pace, (at, tries.size), tries.until)
        if _next(offset, first, rows) > at:
            tries.advanced()
        if trouble == "max_bulk_offsets":
            raise too_many(state, offset)
        if not (yield from tries.again(trouble)):
            raise give_up_error(state, trouble, pace, RESUMABLE)
    offset.mark_of(first, rows, len(rows))  # the next page continues from here, also behind rows that others stored
    yield from upkeep(state, state.clock.monotonic())


def _send_calls(
    state: QueueState, offset: BulkOffset, first: int, rows: Rows, pace: RowPace, where: tuple[int, int], until: float
) -> Op[str]:
    """Send the next calls in one round trip. Return '' or the name of the trouble, such as a bound of the queue."""
    if pace.max_backlog and not (yield from has_room(state, pace, until)):
        return "backlog"
    spans = spans_of(state, rows, *where, pace.calls)
    calls = tuple(_call(state, offset, first, rows, at, to) for at, to in spans)
    trouble, underreplicated, sent_at = "", None, state.clock.monotonic()
    _check_memory(offset, sent_at)
    marks = [offset.mark_of(first, rows, to) for _, to in spans]
    for (_, to), mark, outcome in zip(spans, marks, (yield Batch(calls, until)), strict=True):
        if isinstance(outcome, Unanswered):
            offset.unanswered_since = min(offset.unanswered_since, sent_at) if outcome.sent else offset.unanswered_since
        before, reply = offset.stored, outcome.reply if isinstance(outcome, Underreplicated) else outcome
        if isinstance(reply, list) and reply[0] == b"OK":
            offset.stored, offset.mark = first + to, mark
        else:
            trouble = trouble_of(offset, reply) or trouble
        if isinstance(reply, list):
            offset.unanswered_since = math.inf
        if isinstance(outcome, Underreplicated) and offset.stored > before:
            underreplicated = outcome
    if underreplicated is not None:
        raise DurabilityUnknown(f"rows were stored, but {underreplicated.explain(state.durability.replicas)}", None)
    return trouble


def trouble_of(offset: BulkOffset, outcome: Any) -> str:
    """Return the name of the trouble; '' if the reply only says how far the batch is.

    An error that will not go away is raised.
    """
    match outcome:
        case [b"COUNTED", batch, stored, mark]:
            offset.update(int(batch), int(stored), mark.decode())
            return ""
        case [b"FULL", bound, *_]:
            return str(bound.decode())
        case [b"FORGOTTEN"]:
            raise _forgotten(offset)
        case [word, *_]:
            return str(word.decode())
        case Refused() if outcome.code in TRANSIENT:
            return outcome.code
        case Refused():
            refuse(outcome)
    return str(outcome)


def _check_memory(offset: BulkOffset, now: float) -> None:
    """OutcomeUnknown if Redis may have forgotten rows that it may have stored: a new try could store them twice."""
    if now - offset.unanswered_since > offset.remember:
        raise OutcomeUnknown(
            f"rows of partition {offset.partition} of write id {offset.write_id!r} may be stored: no answer came for "
            f"longer than the {offset.remember:,g} s for which Redis remembers them"
        )


def too_many(state: QueueState, offset: BulkOffset) -> QueueFull:
    """Return QueueFull at once: waiting would not help, since workers drain messages but not bulk offsets."""
    return QueueFull(
        f"queue {state.keys.name!r} remembers max_bulk_offsets = {state.config.max_bulk_offsets:,} partitions of bulk "
        f"writes, so partition {offset.partition} of write id {offset.write_id!r} was not started: give all batches of "
        "a stream one write id and each its number (batchId), write fewer partitions, let Redis remember them for less "
        "time, or raise the bound; the same write id then stores what is missing",
        bound="max_bulk_offsets",
        limit=state.config.max_bulk_offsets,
    )


def _forgotten(offset: BulkOffset) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{LOST_OFFSETS} of write id {offset.write_id!r}, since the queue's key :dedup was deleted or "
        f"evicted after this write had begun: an earlier try may have stored rows of partition {offset.partition}, and "
        "a new one could store them twice, so nothing more of it was stored; look what the queue has, and write what "
        "is missing under a new write id"
    )


def finish(offset: BulkOffset, rows: int) -> None:
    """ConfigError if an earlier try stored more than *rows* rows: then its rows were not the same."""
    if offset.stored > rows:
        raise _different_rows(offset)


def complete(state: QueueState, offsets: Sequence[BulkOffset]) -> Op[None]:
    """Let Redis forget the *offsets* of a write whose rows are all stored, `REMEMBER_COMPLETE` seconds from now.

    Until then they stop copies of its writers that may still run. Do not call this for a write that may be started
    again or continue with another batch. After BackendTimeout or BackendError the offsets may be remembered for their
    full time.
    """
    for at in range(0, len(offsets), 1000):
        fields = [offset.field for offset in offsets[at : at + 1000]]
        call = Call.on(state.keys, "complete", (REMEMBER_COMPLETE * 1000, *fields))
        yield from retry_until(always(call), state.until(), state.clock)


def _next(offset: BulkOffset, first: int, rows: Rows) -> int:
    """Return which of *rows* is stored next. ConfigError if the rows that are stored already are others."""
    at = offset.stored - first
    if at < 0:
        raise BackendTimeout(
            f"rows up to {first:,} of partition {offset.partition} were stored, but Redis knows only of "
            f"{offset.stored:,}: Redis lost data, or this write paused for longer than Redis remembers it; start the "
            "write again from its first row"
        )
    if first + at > 0 and at <= len(rows) and offset.mark and not offset.is_of(first, rows, at):
        raise _different_rows(offset)
    return at


def _different_rows(offset: BulkOffset) -> ConfigError:
    return ConfigError(
        f"row {offset.stored - 1:,} of partition {offset.partition}, or one before it, is not the one that an earlier "
        f"try of this write stored there: under one write id ({offset.write_id!r}) the same rows must come in the same "
        "order and partitions: sort them; or give each row a dedup_key and write with idempotence=key, which passes "
        "over rows that were stored with their key"
    )


def _call(state: QueueState, offset: BulkOffset, first: int, rows: Rows, at: int, to: int) -> Call:
    view = state.view  # read once, since another thread may replace it meanwhile
    before = offset.mark if first + at == offset.stored else offset.mark_of(first, rows, at)
    mark = offset.mark_of(first, rows, to)
    sequence = f"{offset.batch}|{first + at}|{first + to}|{round(offset.remember * 1000)}|{before}|{mark}"
    sequence = f"{sequence}|{view.config.max_bulk_offsets}|{offset.began}"
    return rows_call(state, view, rows, at, to, offset.field, sequence)
