"""A worker's work once a minute: it writes the slots that come within that time, unless another one has.

The server tells its time, and only that counts: the clocks of workers may differ. Its decisions may come late, since a
worker may stand still meanwhile. That changes nothing: how far the schedule is says whether it still holds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, TypeAlias

from shardq.codec import Codecs
from shardq.errors import (
    BackendError,
    ClosedError,
    DurabilityUnknown,
    QueueFull,
    QueueMissing,
    ServerUnfit,
    ShardqError,
)
from shardq.model.schedule import CatchUp, FixedSchedule
from shardq.ops.queue.opening import missing, open_queue
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Argument, Call, Op
from shardq.ops.queue.together import run_together
from shardq.ops.schedules.record import BadRecord, record_of, standing_of
from shardq.ops.schedules.slots import MAX_AHEAD_MS, MAX_CAUGHT_UP, wanted, was_set_back
from shardq.ops.schedules.write import SlotMessage, write_slots

log = logging.getLogger("shardq")
Fixed: TypeAlias = tuple[FixedSchedule, SlotMessage]
SCHEDULES_A_CALL: Final = 100
NEVER_MS: Final = 9_000_000_000_000_000
A_DAY: Final = 86_400_000
"""A stored schedule is looked at after this many ms at the latest: a clock that was wrong cannot hide it for longer."""
PUT_OFF_MS: Final = 60_000
"""Milliseconds for which a stored schedule is left alone that cannot be written now."""
_RANDOM: Final = Random()  # only spreads workers over the schedules of a page


def _has_gone(parts: Any, number: int, error: ShardqError) -> bool:
    """Return whether a partition was drained, and is removed by now: then nothing is missed."""
    return isinstance(error, QueueMissing) and number >= parts.map.written


class Attendant:
    """Writes the slots of the schedules of one queue: those that the program declares (*fixed*) and stored ones."""

    def __init__(self, state: QueueState, codecs: Codecs, fixed: Sequence[FixedSchedule]) -> None:
        self._state = state
        self._fixed = [(each, _message_of(each, codecs)) for each in fixed]
        self._told = set[str]()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be asked: neither does the program declare schedules nor does the queue store any."""
        return not self._fixed and not self._state.config.max_schedules

    def attend(self, timeout: float) -> Op[None]:
        """Look once, and write what is due soon. BackendError; then the next time does the rest."""
        if self._state.parts is None:
            yield from self._attend(self._state, self._fixed, {}, timeout)
        parts = self._state.parts
        if parts is None:  # as it was found
            return
        # Each partition has what is stored there, and the program's schedules whose home it is. Where the home of one
        # has moved, the partition that had it before knows how far it is.
        said: list[dict[str, int]] = []
        failed: list[ShardqError] = []
        if self._fixed:
            found = yield from run_together([self._how_far(state, timeout) for state in parts.states])
            said = [each for each in found if not isinstance(each, ShardqError)]
            errors = [(at, each) for at, each in enumerate(found) if isinstance(each, ShardqError)]
            failed = [each for at, each in errors if not _has_gone(parts, at, each)]
        written = {name: max(each.get(name, 0) for each in said) for name in {name for each in said for name in each}}
        # One that does not answer keeps no other from its schedules, but where homes have moved: it may have had them.
        fixed = () if failed and parts.others() else self._fixed
        for number, state in enumerate(parts.states):
            own = [each for each in fixed if parts.home_of(each[1].shard_key) is state]
            outcome = yield from outcome_of(self._attend(state, own, written, timeout))
            if isinstance(outcome, ShardqError) and not _has_gone(parts, number, outcome):
                failed.append(outcome)
        if failed:
            raise failed[0]

    def _how_far(self, state: QueueState, timeout: float) -> Op[dict[str, int]]:
        """Return up to when the slots of each schedule of the program are written, as far as a partition knows."""
        names = [message.name for _, message in self._fixed]
        found = yield from self._due(state, names, 1, timeout)
        far = {}
        for name, said in zip(names, found[1], strict=True):
            with suppress(BadRecord):  # which learns where it is written
                far[name] = standing_of(said).last
        return far

    def _due(self, state: QueueState, names: Sequence[str], count: int, timeout: float) -> Op[Any]:
        call = Call.on(state.keys, "due_schedules", (MAX_AHEAD_MS, count, *names))
        reply: Any = yield from retry_until(always(call), state.until(timeout), state.clock)
        if len(reply) == 1:
            raise missing(state)
        return reply

    def _attend(
        self, state: QueueState, fixed: Sequence[Fixed], written: Mapping[str, int], timeout: float
    ) -> Op[None]:
        """Attend to what is stored in one queue or partition, and to these schedules of the program.

        Some of them were seen elsewhere, with the time up to which their slots are *written*.
        """
        yield from open_queue(state, state.until(timeout))
        names: list[str] = [message.name for _, message in fixed]
        while True:
            now, said, flat = yield from self._due(state, names, SCHEDULES_A_CALL, timeout)
            for (each, message), standing in zip(fixed if names else (), said, strict=True):
                write = self._write_fixed(state, each, message, standing, now, written.get(message.name), timeout)
                yield from self._guarded(each.where, write)
            rows = [(flat[at], flat[at + 1], flat[at + 2]) for at in range(0, len(flat), 3)]
            moved = yield from self._write_stored(state, rows, now, timeout)
            # The rest of those that are due; but a page where nothing moves would come again and again.
            if len(rows) < SCHEDULES_A_CALL or not moved:
                return
            names = []

    def _guarded(self, where: str, write: Op[Any]) -> Op[Any]:
        """Do *write*. An error in one schedule is logged once, and keeps none of the others."""
        try:
            found = yield from write
        except DurabilityUnknown as error:  # they are written
            log.warning("queue %r, %s: %s", self._state.keys.name, where, error)
            return None
        except (BackendError, ClosedError, QueueMissing, ServerUnfit):
            raise
        except Exception as error:  # noqa: BLE001 (a timetable that another program, or a later version, wrote)
            if where not in self._told and len(self._told) < 1000:
                self._told.add(where)
                kind = "" if isinstance(error, (BadRecord, QueueFull)) else f"{type(error).__name__}: "
                log.error(
                    "queue %r, %s: its calls cannot be written, which is tried again each minute: %s%s",
                    self._state.keys.name, where, kind, error,
                )  # fmt: skip
            return None
        self._told.discard(where)
        return found

    def _write_fixed(
        self,
        state: QueueState,
        each: FixedSchedule,
        message: SlotMessage,
        said: bytes,
        now: int,
        written: int | None,
        timeout: float,
    ) -> Op[None]:
        is_new = not said
        if is_new:
            call = Call.on(state.keys, "begin_schedule", (message.name,))
            reply = yield from retry_until(always(call), state.until(timeout), state.clock)
            if reply == b"NOQUEUE":
                raise missing(state)
            if reply == b"FULL":
                raise BadRecord("the queue remembers 10,000 schedules of programs, and no more")
            now, said = reply
        last = standing_of(said).last
        if written is not None:
            last = written if is_new else max(last, written)
        yield from self._write(state, each.where, message, each.catch_up, said, last, now, timeout)

    def _write_stored(
        self, state: QueueState, rows: list[tuple[bytes, bytes, bytes]], now: int, timeout: float
    ) -> Op[int]:
        """Write the slots of these stored schedules, and note when to look at each next. Return how many were moved."""
        _RANDOM.shuffle(rows)
        moves: list[Argument] = []
        for name, said, raw in rows:
            where = f"schedule {name.decode(errors='replace')!r}"
            found = yield from self._guarded(where, self._write_one(state, where, name, said, raw, now, timeout))
            moves += (name, *(found or (said, now + MAX_AHEAD_MS + PUT_OFF_MS)))
        if not moves:
            return 0
        call = Call.on(state.keys, "move_schedules", tuple(moves))
        moved: int = yield from retry_until(always(call), state.until(timeout), state.clock)
        return moved

    def _write_one(
        self, state: QueueState, where: str, name: bytes, said: bytes, raw: bytes, now: int, timeout: float
    ) -> Op[tuple[Argument, Argument]]:
        """Write the slots of one stored schedule. Return how far it is, and when to look at it next."""
        record, standing = record_of(raw), standing_of(said)
        if standing.paused:
            return said, NEVER_MS
        message = SlotMessage(f"u:{name.decode()}", record.timetable, record.shard_key, record.tag, record.body)
        said = yield from self._write(state, where, message, record.catch_up, said, standing.last, now, timeout)
        if not said:  # it was removed meanwhile
            return said, NEVER_MS
        last = standing_of(said).last
        following = record.timetable.after(now if was_set_back(last, now) else max(last, now))
        return said, min(now + A_DAY, NEVER_MS if following is None else following)

    def _write(
        self,
        state: QueueState,
        where: str,
        message: SlotMessage,
        catch_up: CatchUp,
        said: bytes,
        before: int,
        now: int,
        timeout: float,
    ) -> Op[bytes]:
        """Write the slots after *before* that are wanted, for a schedule that is as far as *said*.

        Return how far it is then.
        """
        slots, left_out, last = wanted(message.timetable, before, now, catch_up)
        if not slots:
            return said
        following = standing_of(said).moved(last)
        other = yield from write_slots(state, message, slots, said, following, state.until(timeout))
        if other is not None:
            return other
        self._tell(where, message, before, now, left_out)
        return following.encode()

    def _tell(self, where: str, message: SlotMessage, before: int, now: int, left_out: Sequence[int]) -> None:
        """Log what the worker that wrote the slots did not write."""
        queue, told = self._state.keys.name, message.timetable.told
        if was_set_back(before, now):
            log.warning(
                "queue %r, %s: the server's clock was set back: its slots were written up to %s, and count from %s on",
                queue, where, told(before), told(now),
            )  # fmt: skip
        if left_out:
            log.warning(
                "queue %r, %s: no worker was there for some slots, and its catch_up leaves %s of them out, up to %s",
                queue, where, f"more than {MAX_CAUGHT_UP}" if len(left_out) > MAX_CAUGHT_UP else len(left_out),
                told(left_out[-1]),
            )  # fmt: skip


def _message_of(each: FixedSchedule, codecs: Codecs) -> SlotMessage:
    tag, body = codecs.encode(each.payload)
    return SlotMessage(f"c:{each.name}", each.timetable, each.shard_key, tag, body)
