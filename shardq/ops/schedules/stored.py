"""Operations on stored schedules: add, pause, resume, run, remove, list."""

from __future__ import annotations

import re
import secrets
from typing import Any, Final, TypeVar

from shardq.arguments import flag, shown
from shardq.codec import Codecs
from shardq.errors import ConfigError, QueueFull, ScheduleNotFound, ShardqError
from shardq.model import Written
from shardq.model.schedule import Schedule, check_catch_up
from shardq.model.timetable import timetable
from shardq.ops.queue.change import check_replicas
from shardq.ops.queue.numbered import numbered, spelled
from shardq.ops.queue.opening import missing, open_queue
from shardq.ops.queue.retry import always, retry_replicated, retry_until
from shardq.ops.queue.sequences import ProducerSequence
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op, Underreplicated
from shardq.ops.queue.who import NOBODY, Who
from shardq.ops.schedules.record import (
    BadRecord,
    ScheduleRecord,
    record_of,
    schedule_of,
    standing_of,
    stored_record,
)
from shardq.ops.write.outgoing import Outgoing, check_shard_key
from shardq.ops.write.refusal import part_told, shares
from shardq.ops.write.write import write_one
from shardq.protocol.bodies import text_or_bytes
from shardq.sharding import key_bytes

T = TypeVar("T")
MAX_PAYLOAD: Final = 16 * 1024
"""Bytes that the payload of a stored schedule may have."""
MIN_EVERY: Final = 60
"""Seconds: so that a thousand schedules of one tenant are no flood that delays those of others."""
SCHEDULES_A_CALL: Final = 100
_NAME: Final = re.compile(r"[\w.:/@-]{1,200}", re.ASCII)


def add(
    state: QueueState,
    codecs: Codecs,
    name: str,
    payload: Any,
    shard_key: str | bytes,
    cron: str | None,
    tz: str,
    every: int | None,
    catch_up: str,
    paused: bool,
    timeout: float | None,
) -> Op[Schedule]:
    """Store a schedule, or change the one of this name. ConfigError, CodecError or QueueFull: nothing was changed."""
    check_shard_key(state, shard_key)
    tag, body = codecs.encode(payload)
    if len(body) > MAX_PAYLOAD:
        raise ConfigError(
            f"the payload of a schedule may have {MAX_PAYLOAD:,} bytes, this one has {len(body):,}: store it elsewhere"
        )
    key = key_bytes(shard_key)
    times = timetable(cron, tz, every)
    if (times.every and times.every < MIN_EVERY) or len(times.cron.split()) > 5:
        raise ConfigError("a stored schedule is due once a minute at most: every >= 60, or a cron line of five words")
    record = stored_record(ScheduleRecord(times, key, check_catch_up(catch_up), tag, body))
    mark = "p" if flag("paused", paused) else "a"
    args = (_checked(name), record, secrets.token_urlsafe(6), key, mark)
    until = state.until(timeout)
    yield from open_queue(state, until)
    call = Call.on(state.keys, "store_schedule", args, replicas=state.durability.replicas)
    reply, underreplicated = yield from retry_replicated(always(call), until, state.clock)
    match reply:
        case [b"OK", now, said]:
            stored = schedule_of(name.encode(), said, b"0:" + record, now)
            return check_replicas(state, underreplicated, stored)
        case _:
            raise _refused(state, shard_key, reply)


def _refused(state: QueueState, shard_key: str | bytes, reply: Any) -> ShardqError:
    """Return why a schedule was not stored."""
    match reply:
        case b"NOQUEUE":
            return missing(state)
        case b"NONE":
            return ConfigError(
                f"queue {state.keys.name!r} stores no schedules: configure(max_schedules=1000) lets it store that many"
            )
        case _:
            return _full(state, shard_key, *reply[1:])


def _full(state: QueueState, key: str | bytes, most: int, stored: int, used: int) -> QueueFull:
    return QueueFull(
        f"queue {state.keys.name!r} may store max_schedules = {most:,} schedules{part_told(state)}, {shares(most)}; "
        f"shard key {key!r} has {used:,}, others have {stored - used:,}: remove some, or raise it",
        bound="max_schedules", limit=most, used=used, others=stored - used,
    )  # fmt: skip


def pause(state: QueueState, name: str, paused: bool, timeout: float | None) -> Op[None]:
    """Pause a stored schedule, or resume it. ScheduleNotFound."""
    args = (_checked(name), secrets.token_urlsafe(6), "p" if paused else "a")
    call = Call.on(state.keys, "pause_schedule", args, replicas=state.durability.replicas)
    reply, underreplicated = yield from retry_replicated(always(call), state.until(timeout), state.clock)
    if not (yield from _existed(state, name, bool(reply), underreplicated, timeout)):
        raise _not_found(state, name)


def remove(state: QueueState, name: str, timeout: float | None) -> Op[bool]:
    """Remove a stored schedule. Return whether there was one."""
    _checked(name)
    until = state.until(timeout)

    def make(sequence: ProducerSequence) -> Call:
        args = (name, spelled(state, sequence, until))
        return Call.on(state.keys, "remove_schedule", args, replicas=state.durability.replicas)

    (_, told), underreplicated = yield from numbered(state, make, until)
    return (yield from _existed(state, name, bool(told == b"1"), underreplicated, timeout))


def _existed(
    state: QueueState, name: str, existed: bool, underreplicated: Underreplicated | None, timeout: float | None
) -> Op[bool]:
    """Return whether a schedule *existed*, as the reply to its change says.

    QueueMissing if there is no queue, either.
    """
    if not existed:
        yield from _page(state, b"0", name, timeout)
    return check_replicas(state, underreplicated, existed)


def run(state: QueueState, name: str, timeout: float | None, who: Who = NOBODY) -> Op[Written]:
    """Write the call of a stored schedule now, also of one that is paused. Its slots stay what they are."""
    asked = who.asked_by(state)
    _, _, (row, *_) = yield from _page(state, b"0", _checked(name), timeout)
    if not row[2]:
        raise _not_found(state, name)
    record = record_of(row[2])
    message = Outgoing(text_or_bytes(record.shard_key), record.tag, record.body, asked=asked)
    return (yield from write_one(state, message, timeout))


def listed(state: QueueState, timeout: float | None) -> Op[list[Schedule]]:
    """Return all stored schedules by their names."""
    found: dict[bytes, Schedule] = {}
    cursor = b"0"
    while True:
        now, cursor, rows = yield from _page(state, cursor, "", timeout)
        for name, said, raw, runs in rows:
            try:
                found[name] = schedule_of(name, said, raw, now, runs)
            except (BadRecord, KeyError, OSError, ValueError):  # another program's, or of a zone that is unknown here
                continue
        if cursor == b"0":
            return [found[name] for name in sorted(found)]


def move(state: QueueState, home: QueueState, name: str, timeout: float | None) -> Op[None]:
    """Move a stored schedule from the partition of *state* to its *home*, as far as it is. One that is there stays.

    For a moment it is in both: then a slot may be written twice, but none is missed.
    """
    _, _, (row, *_) = yield from _page(state, b"0", name, timeout)
    _, _, (there, *_) = yield from _page(home, b"0", name, timeout)
    if not row[2]:
        return
    if not there[2]:
        until, record, standing = home.until(timeout), record_of(row[2]), standing_of(row[1])
        yield from open_queue(home, until)
        mark = "p" if standing.paused else "a"
        args = (name, stored_record(record), secrets.token_urlsafe(6), record.shard_key, mark, standing.last)
        call = Call.on(home.keys, "store_schedule", args, replicas=home.durability.replicas)
        reply, _ = yield from retry_replicated(always(call), until, home.clock)
        if reply[:1] != [b"OK"]:
            raise _refused(home, text_or_bytes(record.shard_key), reply)
    yield from remove(state, name, timeout)


def _page(
    state: QueueState, cursor: bytes, name: str, timeout: float | None
) -> Op[tuple[int, bytes, list[list[bytes]]]]:
    call = Call.on(state.keys, "schedules", (cursor, SCHEDULES_A_CALL, name))
    reply = yield from retry_until(always(call), state.until(timeout), state.clock)
    if len(reply) == 1:
        raise missing(state)
    now, cursor, flat = reply
    return now, cursor, [flat[at : at + 4] for at in range(0, len(flat), 4)]


def _not_found(state: QueueState, name: str) -> ScheduleNotFound:
    return ScheduleNotFound(f"queue {state.keys.name!r} has no stored schedule {name!r}")


def _checked(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"the name of a schedule is 1 to 200 letters, digits and . _ - : / @, not {shown(name)}")
    return name
