"""Runs of tasks, measured for OpenTelemetry: only in a process whose program exports metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from shardq.clock import Clock
from shardq.telemetry import TaskTimes
from shardq.worker.outcome import Failed, GiveBack, is_a


def measured(run: Callable[[Any], Any], times: TaskTimes, clock: Clock) -> Callable[[Any], Any]:
    """Return *run* of a Worker, which also notes in *times* how long it took and what it raised."""

    def measure(delivery: Any) -> Any:
        began, failure = clock.monotonic(), None
        try:
            return run(delivery)
        except BaseException as error:
            failure = error
            raise
        finally:
            _note(times, delivery, clock.monotonic() - began, failure)

    return measure


def measured_async(
    run: Callable[[Any], Awaitable[Any]], times: TaskTimes, clock: Clock
) -> Callable[[Any], Awaitable[Any]]:
    """Do as `measured` for an AsyncWorker."""

    async def measure(delivery: Any) -> Any:
        began, failure = clock.monotonic(), None
        try:
            return await run(delivery)
        except BaseException as error:
            failure = error
            raise
        finally:
            _note(times, delivery, clock.monotonic() - began, failure)

    return measure


def _note(times: TaskTimes, delivery: Any, took: float, failure: BaseException | None) -> None:
    if failure is not None and is_a(failure, GiveBack):  # no task has run
        return
    cause = failure.error if failure is not None and is_a(failure, Failed) else failure
    queue = getattr(delivery, "queue", None)  # a child process does not know it
    times.note(None if queue is None else queue.name, delivery.task, took, cause)
