"""The last half hour of a queue as lines: a value a minute, None where nobody wrote one down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from shardq.model.minute import Minute
from shardq.model.wording import plural
from shardq.model.worker_status import PICKUP_BOUNDS, WorkerStatus
from shardq.protocol.beats import percentile

MINUTE: Final = 60
MINUTES: Final = 30
"""Minutes that are shown."""
DEPLOY_SECONDS: Final = 300.0
"""Seconds within which workers begin that begin together, as in a deploy."""
MAX_MARKS: Final = 3
"""Times at which workers began that are marked: the last ones."""


def past(minutes: Sequence[Minute], now: float, working: Sequence[WorkerStatus] = ()) -> dict[str, Any] | None:
    """Return the lines of what a queue did; None if nobody wrote anything down.

    `written`, `done` and `failed` are messages a second; `oldest` is how long the first in line waited, `took` within
    which time 99 of 100 jobs were done, both in seconds. `marks` say when those that are *working* began.
    """
    start = (int(now) // MINUTE - MINUTES) * MINUTE
    by_time = {int(each.at) // MINUTE * MINUTE: each for each in minutes if each.at >= start}
    if not by_time:
        return None
    rows = [by_time.get(start + at * MINUTE) for at in range(MINUTES)]

    def line(value: Callable[[Minute], float | None]) -> list[float | None]:
        return [None if row is None else _short(value(row)) for row in rows]

    return {
        "start": start,
        "step": MINUTE,
        "marks": _marks(working, start),
        "written": line(lambda row: _a_second(row.written)),
        "done": line(lambda row: _a_second(row.done)),
        "failed": line(lambda row: _a_second(row.failed)),
        "oldest": line(lambda row: row.oldest_age or 0.0),
        "took": line(lambda row: percentile(durations(row), 0.99)),
    }


def _marks(working: Sequence[WorkerStatus], start: float) -> list[dict[str, Any]]:
    """Return where on the lines workers began that live, and how many did."""
    began = sorted(each.started for each in working if each.started >= start)
    groups: list[list[float]] = []
    for at in began:
        if groups and at - groups[-1][0] <= DEPLOY_SECONDS:
            groups[-1].append(at)
        else:
            groups.append([at])
    return [
        {"at": round(min(MINUTES - 1.0, (each[0] - start) / MINUTE), 2), "text": f"{plural(len(each), 'worker')} began"}
        for each in groups[-MAX_MARKS:]
    ]


def lately(minutes: Sequence[Minute], now: float) -> dict[str, Any] | None:
    """Return the same for a small picture: `written`, `done`, `failed`."""
    found = past(minutes, now)
    return None if found is None else {name: found[name] for name in ("written", "done", "failed")}


def durations(minute: Minute, task: str | None = None) -> list[int]:
    """Return how many jobs of a minute, for one *task* or for all, took how long: by the bounds of `PICKUP_BOUNDS`."""
    counts = [0] * len(PICKUP_BOUNDS)
    for each in minute.tasks:
        if task is None or each.task == task:
            for at, count in enumerate(each.durations[: len(counts)]):
                counts[at] += count
    return counts


def _a_second(count: int | None) -> float | None:
    return None if count is None else count / MINUTE


def _short(value: float | None) -> float | None:
    """Return a number with as many digits as a picture shows."""
    return None if value is None else float(f"{value:.3g}")
