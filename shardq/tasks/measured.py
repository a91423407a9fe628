"""Runs of tasks, measured for OpenTelemetry: only in a process whose program exports metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from shardq.clock import Clock
from shardq.telemetry import TaskTimes
from shardq.worker.outcome import GiveBack, is_a
from shardq.worker.state import Job


def measured(run: Callable[[Job], Any], times: TaskTimes, clock: Clock) -> Callable[[Job], Any]:
    """Return *run* of a plain call, which also notes in *times* how long it took and what it raised."""

    def measure(job: Job) -> Any:
        began, failure = clock.monotonic(), None
        try:
            return run(job)
        except BaseException as error:
            failure = error
            raise
        finally:
            _note(times, job.delivery, clock.monotonic() - began, failure)

    return measure


def measured_async(
    run: Callable[[Job], Awaitable[Any]], times: TaskTimes, clock: Clock
) -> Callable[[Job], Awaitable[Any]]:
    """Do as `measured` for an async call."""

    async def measure(job: Job) -> Any:
        began, failure = clock.monotonic(), None
        try:
            return await run(job)
        except BaseException as error:
            failure = error
            raise
        finally:
            _note(times, job.delivery, clock.monotonic() - began, failure)

    return measure


def _note(times: TaskTimes, delivery: Any, took: float, failure: BaseException | None) -> None:
    if failure is not None and is_a(failure, GiveBack):  # no task has run
        return
    queue = getattr(delivery, "queue", None)  # a child process does not know it
    times.note(None if queue is None else queue.name, delivery.task, took, failure)
