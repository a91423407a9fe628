"""A queue's work, and its means: read from its table of jobs (`shardq.jobs.schema`).

A job of the table becomes the tries that a replay makes. The table has the sums of how long tries ran, and after how
long they were repeated: these are divided, tries evenly, and delays so that each is twice the one before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any, Final, TypeAlias

import msgspec

Row: TypeAlias = Mapping[str, Any]
"""A row of a table, by the names of its columns."""

NOBODY: Final = "(unknown)"
"""The shard key of jobs without one."""

MAX_TRIES: Final = 1_000
"""A job is tried so often at most; one that was given back more often had nothing done on it."""


class Try(msgspec.Struct, frozen=True):
    """One try of a job: it runs for `ran` seconds. If it is not the last one, the next may begin after `delay`."""

    ran: float
    delay: float = 0.0


class Arrival(msgspec.Struct, frozen=True):
    """A job that is written `at`, and can first be delivered at `ready_at`.

    `waited` is for how long it then waited in fact, None if it was never delivered. It is `cancelled_at` then if nobody
    has begun it.
    """

    at: float
    ready_at: float
    shard_key: str
    tries: tuple[Try, ...]
    waited: float | None = None
    ended_at: float | None = None
    cancelled_at: float | None = None

    @property
    def delay(self) -> float:
        """For how long it is delayed."""
        return max(0.0, self.ready_at - self.at)

    @property
    def ran(self) -> float:
        """For how long all tries run."""
        return sum(each.ran for each in self.tries)


class HistoryChange(msgspec.Struct, frozen=True):
    """A setting `at` a time: all that is known since then of what `scope` ("queue", "key" or "plan") and `key` name."""

    at: float
    scope: str
    key: str | None
    state: Row


class Stay(msgspec.Struct, frozen=True):
    """A worker with `slots` slots was there from `begin` to `end`; None: since before, and to the end."""

    slots: int
    begin: float | None
    end: float | None


class History(msgspec.Struct, frozen=True):
    """The history of a queue from `begin` to `end`, in Unix seconds: all in order of time."""

    queue: str
    begin: float
    end: float
    arrivals: Sequence[Arrival]
    changes: Sequence[HistoryChange]
    stays: Sequence[Stay]

    @property
    def slots(self) -> int:
        """How many slots most workers had; 1 if none is known."""
        counts = Counter(each.slots for each in self.stays)
        return counts.most_common(1)[0][0] if counts else 1


def history_of(
    queue: str, jobs: Iterable[Row], settings: Iterable[Row], capacity: Iterable[Row], since: float | None = None
) -> History | None:
    """Return the history of *queue* that these rows tell, which are of this queue; None if they have no job.

    Jobs whose time of writing is not known are left out. Jobs that waited already at *since* are written then.
    """
    known = sorted((row for row in jobs if row["written_at"] is not None), key=lambda row: _at(row, "written_at"))
    if not known:
        return None
    usual = _Usual(known)
    arrivals = [_arrival(row, usual, -math.inf if since is None else since) for row in known]
    changes = sorted((_change(row) for row in settings), key=lambda each: each.at)
    stays = [Stay(row["slots"], _time(row["from_at"]), _time(row["to_at"])) for row in capacity if row["slots"]]
    end = max(each.ended_at or each.at for each in arrivals)
    return History(queue, arrivals[0].at, end, arrivals, changes, stays)


def _time(value: datetime | None) -> float | None:
    return None if value is None else value.timestamp()


def _at(row: Row, name: str) -> float:
    value: datetime = row[name]
    return value.timestamp()


def _change(row: Row) -> HistoryChange:
    return HistoryChange(_at(row, "at"), row["scope"], row["key"], {name: _plain(value) for name, value in row.items()})


def _plain(value: Any) -> Any:
    return value.timestamp() if isinstance(value, datetime) else value


class _Usual:
    """The usual run of jobs: of their task, of their shard key, or at all, whichever is known first."""

    def __init__(self, rows: Sequence[Row]) -> None:
        found: dict[tuple[str, str | None], list[float]] = {}
        for row in rows:
            if (ran := _ran(row)) is not None:
                for name in (("task", row["task"]), ("key", row["shard_key"]), ("", None)):
                    found.setdefault(name, []).append(ran)
        self._medians = {name: median(each) for name, each in found.items()}

    def of(self, row: Row) -> float:
        for name in (("task", row["task"]), ("key", row["shard_key"]), ("", None)):
            if name in self._medians and name != ("task", None):
                return self._medians[name]
        return 0.0


def _ran(row: Row) -> float | None:
    """Return for how long the tries of a job ran in all; how long they were held if nobody told; None: none was."""
    if row["first_at"] is None:
        return None
    ran = float(row["held_s"] if row["ran_s"] is None else row["ran_s"])
    return ran if math.isfinite(ran) and ran >= 0 else 0.0  # of a table that something else wrote


def _arrival(row: Row, usual: _Usual, since: float) -> Arrival:
    at, ready, first, ended = (_time(row[name]) for name in ("written_at", "ready_at", "first_at", "ended_at"))
    written = max(since, at or 0.0)
    ready = written if ready is None else ready
    waited = None if first is None else max(0.0, first - ready)
    ran = _ran(row)
    tries = (Try(usual.of(row)),) if ran is None or ended is None else _tries(row, ran)
    cancelled = ended if first is None else None
    return Arrival(written, ready, row["shard_key"] or NOBODY, tries, waited, ended, cancelled)


def _tries(row: Row, ran: float) -> tuple[Try, ...]:
    """Return the tries of a job that was delivered. Its wait for anything but a turn between two of them is a delay.

    Deliveries that do not count were given back at once: they are none.
    """
    count = max(1, min(MAX_TRIES, row["attempts"] - row["uncounted"]))
    delays = _shares(_delayed(row), count - 1)
    return tuple(Try(ran / count, delay) for delay in (*delays, 0.0))


def _delayed(row: Row) -> float:
    """Return for how long a job was delayed between its tries: no part of that it was in flight, or ready."""
    ready, first, last, ended = (_time(row[name]) for name in ("ready_at", "first_at", "last_at", "ended_at"))
    if ready is None or first is None or last is None or ended is None:
        return 0.0
    in_flight: float = row["held_s"] - (ended - last)
    waited: float = row["wait_s"] - (first - ready)
    return max(0.0, last - first - max(0.0, in_flight) - max(0.0, waited))


def _shares(total: float, count: int) -> list[float]:
    """Divide *total* by *count* so that each is twice the one before, as a backoff does.

    >>> _shares(7, 3), _shares(7, 0)
    ([1.0, 2.0, 4.0], [])
    """
    parts: list[float] = [2.0**at for at in range(count)]
    return [total * each / sum(parts) for each in parts]
