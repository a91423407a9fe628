"""Which slots of a schedule are to be written now: those that come soon, and those that were missed."""

from __future__ import annotations

from typing import Final, NamedTuple

from shardq.model.schedule import CatchUp
from shardq.model.timetable import Timetable

MAX_AHEAD_MS: Final = 75_000
"""A slot is written at most this many ms before it: workers look once a minute, and may be late by a quarter of that.
"""
LATE_MS: Final = 60_000
"""Milliseconds by which the last slot may be late that is written whatever `catch_up` says."""
MAX_CAUGHT_UP: Final = 100
"""Missed slots that are written with catch_up="all": the last ones."""
SET_BACK: Final = 3_600_000
"""A schedule that is this many ms ahead of the clock, or more, was moved on by a clock that was wrong."""


class WantedSlots(NamedTuple):
    """The slots to be written, and of those that were missed how many are left out (MOST if more), the first of them.

    All in ms. `last` is what is written of the schedule after that.
    """

    slots: list[int]
    left_out: list[int]
    last: int


def wanted(times: Timetable, last: int, now: int, catch_up: CatchUp) -> WantedSlots:
    """Return which slots of *times* are to be written at *now*, for a schedule whose slots up to *last* are written."""
    begin = now if was_set_back(last, now) else last
    missed = _missed(times, begin, now)
    coming = times.between(max(begin, now), now + MAX_AHEAD_MS)
    if catch_up == "all":
        late = missed[-MAX_CAUGHT_UP:]
    else:
        late = [slot for slot in missed[-1:] if catch_up == "once" or slot >= now - LATE_MS]
    slots = late + coming
    left_out = missed[: len(missed) - len(late)]
    return WantedSlots(slots, left_out, slots[-1] if slots else last)


def was_set_back(last: int, now: int) -> bool:
    """Return whether the clock was wrong when slots up to *last* were written: it has gone back by far since."""
    return last > now + MAX_AHEAD_MS + SET_BACK


def _missed(times: Timetable, last: int, now: int) -> list[int]:
    """Return the last slots that should be written by *now*, one more than MOST of them at most."""
    first = times.after(last) if last < now else None
    return [] if first is None or first > now else times.latest(last, now, MAX_CAUGHT_UP + 1)
