"""Redis's record of a schedule: what it is, and how far it is (lua/schedules.lua)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from shardq.errors import ShardqError
from shardq.model.call import called
from shardq.model.schedule import CatchUp, Run, Schedule
from shardq.model.timetable import Timetable
from shardq.protocol.bodies import message_id, text_or_bytes

_RUN: Final = re.compile(r"(\d{1,15}):(\d{1,15}-\d{1,15})-(\w{1,8})(?= |$)")
_SAID: Final = re.compile(r"(\d{1,15})(?:\.([\w-]*)\.([ap]))?")


class ScheduleRecord(msgspec.Struct, frozen=True):
    """A stored schedule: when it is due, and the message that is written then, encoded."""

    timetable: Timetable
    shard_key: bytes
    catch_up: CatchUp
    tag: str
    body: bytes


class BadRecord(ShardqError):
    """The record of a schedule cannot be read: another program, or a later version, wrote it."""


_RECORDS: Final = msgspec.msgpack.Decoder(ScheduleRecord)


def stored_record(record: ScheduleRecord) -> bytes:
    """Return what Redis keeps of *record*; its owner comes in front of it."""
    return msgspec.msgpack.encode(record)


def record_of(raw: bytes) -> ScheduleRecord:
    """Read a record behind "size:owner". BadRecord if it is none."""
    size, _, rest = raw.partition(b":")
    try:
        return _RECORDS.decode(rest[int(size) :])
    except (ValueError, msgspec.MsgspecError) as error:
        raise BadRecord(f"it cannot be read ({type(error).__name__})") from None


class Standing(NamedTuple):
    """How far a schedule is: all slots up to `last` (ms) are written, or left out."""

    last: int
    revision: str | None
    paused: bool

    def moved(self, last: int) -> str:
        """Return how far it is once its slots up to *last* are written, as Redis keeps it."""
        return f"{last}" if self.revision is None else f"{last}.{self.revision}.{'p' if self.paused else 'a'}"


def standing_of(said: bytes) -> Standing:
    """Read how far a schedule is. BadRecord if another program wrote it."""
    found = _SAID.fullmatch(said.decode(errors="replace"))
    if found is None:
        raise BadRecord("nobody knows how far it is: another program wrote that")
    return Standing(int(found[1]), found[2], found[3] == "p")


def schedule_of(name: bytes, said: bytes, raw: bytes, now: int, runs: bytes = b"") -> Schedule:
    """Return a stored schedule for users, with its last *runs* as Redis has them. BadRecord if it cannot be read."""
    record, standing = record_of(raw), standing_of(said)
    times = record.timetable
    following = None if standing.paused else times.after(max(standing.last, now))
    return Schedule(
        name=name.decode(errors="replace"),
        task=called(record.tag, record.body),
        shard_key=text_or_bytes(record.shard_key),
        cron=times.cron or None,
        tz=times.tz,
        every=times.every or None,
        catch_up=record.catch_up,
        paused=standing.paused,
        last=standing.last / 1000,
        next=None if following is None else following / 1000,
        runs=tuple(_runs_of(runs, record.shard_key)),
    )


def _runs_of(raw: bytes, shard_key: bytes) -> Iterator[Run]:
    """Yield the calls that were written for slots. Entries of another program are passed over."""
    for each in _RUN.finditer(raw.decode(errors="replace")):
        yield Run(int(each[1]) / 1000, message_id(each[2], each[3], text_or_bytes(shard_key)))
