"""A schedule: a call that is made again and again, and its times."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

import msgspec

from shardq.arguments import one_of
from shardq.model.timetable import Timetable

CatchUp: TypeAlias = Literal["skip", "once", "all"]
"""The rule for slots that no worker wrote in time: none of them is written, the last one, or the last 100."""
CATCH_UPS: Final = get_args(CatchUp)


class FixedSchedule(msgspec.Struct, frozen=True):
    """A schedule that a program declares: when which payload is written. `where` names it in logs."""

    name: str
    where: str
    timetable: Timetable
    shard_key: str | bytes
    catch_up: CatchUp
    payload: object


class Run(msgspec.Struct, frozen=True):
    """A call that was written for a `slot` (seconds since 1970) of a schedule: the message of this id."""

    slot: float
    message_id: str


class Schedule(msgspec.Struct, frozen=True):
    """A schedule that was stored by `schedules.add`.

    `task` is the name of the task that it calls; '' if its payload is no call. It is due at the times of the `cron`
    line in the zone `tz`, or each `every` seconds. `next` is its next slot, and `last` up to when its slots are
    written, both in seconds since 1970; `next` is None while it is `paused`. `runs` are the last calls that were
    written for its slots, 8 at most, the newest last; of calls that were written at once it is the last one.

    `name` is its name, `shard_key` is what its calls are written for, and `catch_up` says what becomes of slots that no
    worker was there for.

    >>> from shardq.testing import fake_client
    >>> schedules = fake_client().queue("jobs", max_schedules=10).schedules
    >>> schedule = schedules.add("digest", "hello", shard_key="acme", every=3600)
    >>> schedule.when, schedule.catch_up
    ('every 3600 s', 'skip')
    """

    name: str
    task: str
    shard_key: str | bytes
    cron: str | None
    tz: str
    every: int | None
    catch_up: CatchUp
    paused: bool
    last: float
    next: float | None
    runs: tuple[Run, ...] = ()

    @property
    def when(self) -> str:
        """When it is due, in words: its cron line with the zone, or every N seconds."""
        return f"{self.cron} ({self.tz})" if self.cron else f"every {self.every} s"


def check_catch_up(catch_up: str) -> CatchUp:
    """Return *catch_up* if it is one of the three; else ConfigError."""
    return one_of("catch_up", catch_up, CATCH_UPS)  # type: ignore[return-value]
