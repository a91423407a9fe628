"""The schedules that a program declares for its tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shardq.arguments import whole
from shardq.errors import ConfigError
from shardq.model.call import IS_NAME
from shardq.model.schedule import CatchUp, FixedSchedule, check_catch_up
from shardq.model.timetable import MAX_EVERY, Timetable
from shardq.sharding import key_bytes
from shardq.tasks.task import BatchTask, Task

MAX_SCHEDULES: Final = 1000
"""Schedules that may be declared for the tasks of one queue."""
SHARD_KEY: Final = "cron"


class TaskSchedules:
    """The schedules of the tasks of one queue, by their names."""

    def __init__(self) -> None:
        self._by_name: dict[str, FixedSchedule] = {}

    def all(self) -> list[FixedSchedule]:
        """Return them in the order of their declarations."""
        return [*self._by_name.values()]

    def add(
        self,
        task: Task[Any, Any, Any],
        times: Callable[[], Timetable],
        shard_key: str | bytes,
        catch_up: CatchUp,
        name: str | None,
    ) -> None:
        """Let *task* be called at the times that *times* returns. ConfigError names its function."""
        called = task.name if name is None else name
        try:
            if not isinstance(called, str) or not IS_NAME.fullmatch(called):
                raise ConfigError("its name must have 1 to 200 letters, digits or any of . _ - : / < >")
            if called in self._by_name:
                raise ConfigError(f"there is another one called {called!r}: give one of them a name")
            if len(self._by_name) >= MAX_SCHEDULES:
                raise ConfigError(f"there are {MAX_SCHEDULES:,} already; schedules.add stores any number in Redis")
            key_bytes(shard_key)
            where, payload = f"the schedule of {task.where}", _called_without_arguments(task)
            found = FixedSchedule(called, where, times(), shard_key, check_catch_up(catch_up), payload)
        except ConfigError as error:
            raise ConfigError(f"the schedule of {task.where}: {error}") from None
        self._by_name[called] = found


def _called_without_arguments(task: Task[Any, Any, Any]) -> object:
    if isinstance(task, BatchTask):
        raise ConfigError("it takes a batch, and a schedule has nothing to put into it")
    try:
        return task.call()
    except ConfigError as error:
        raise ConfigError(f"it is called without arguments, so each parameter needs a default: {error}") from None


def interval(days: int, hours: int, minutes: int, seconds: int) -> int:
    """Return how many seconds these are together, 1 s to 366 days. ConfigError."""
    parts = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    for name, value in parts.items():
        whole(name, value, 0, MAX_EVERY)
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
