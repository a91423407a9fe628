"""A queue's work in one minute of the last eight hours."""

from __future__ import annotations

import msgspec


class TaskMinute(msgspec.Struct, frozen=True):
    """The work of all workers on one task since the minute before: jobs *done*, *failed*, their sum in *seconds*.

    `durations` counts these jobs in 16 buckets, whose upper bounds are `PICKUP_BOUNDS`. The task "other" is the sum of
    those beyond the first 24. `task` is the task's name. `Queue.history` returns them in a `Minute`.
    """

    task: str
    done: int
    failed: int
    seconds: float
    durations: tuple[int, ...] = ()


class Minute(msgspec.Struct, frozen=True):
    """One minute of a queue. `at` is its beginning, in seconds since the epoch by the server's clock.

    `written`, `done` (acked), `failed` (given back with an error) and `dead` count what happened since the minute
    before; they are None where that one is missing. All other numbers are of the moment when the first worker was heard
    in that minute; of more than 256 workers, `workers`, `slots` and `busy` are estimated from as many. A minute in
    which no worker was heard is missing, since nobody wrote it. `tasks` are what workers did of each since the minute
    before, as they said within this one; they are kept for an hour.

    `Queue.history` returns them. `backlog` messages waited, `runnable` of them could be delivered at once, and
    `in_flight` were worked on; the one that waited longest did so for `oldest_age` seconds (None: none waited).
    """

    at: float
    written: int | None
    done: int | None
    failed: int | None
    dead: int | None
    backlog: int
    runnable: int
    in_flight: int
    oldest_age: float | None
    workers: int
    slots: int
    busy: float
    tasks: tuple[TaskMinute, ...] = ()
