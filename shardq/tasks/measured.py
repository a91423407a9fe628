"""Runs of tasks, measured for OpenTelemetry: only in a process whose program exports metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shardq.clock import Clock
from shardq.model.failed import is_a
from shardq.telemetry import TaskTimes
from shardq.worker.outcome import GiveBack
from shardq.worker.state import Job


def measured(run: Callable[[Job], Any], times: TaskTimes, clock: Clock) -> Callable[[Job], Any]:
    """Return *run* of a plain call, which also notes in *times* how long it took and what it raised."""

    def measure(job: Job) -> Any:
        with _noted(times, clock, job.delivery):
            return run(job)

    return measure


def measured_async(
    run: Callable[[Job], Awaitable[Any]], times: TaskTimes, clock: Clock
) -> Callable[[Job], Awaitable[Any]]:
    """Do as `measured` for an async call."""

    async def measure(job: Job) -> Any:
        with _noted(times, clock, job.delivery):
            return await run(job)

    return measure


@contextmanager
def _noted(times: TaskTimes, clock: Clock, delivery: Any) -> Iterator[None]:
    began, failure = clock.monotonic(), None
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        if failure is None or not is_a(failure, GiveBack):  # else no task has run
            queue = getattr(delivery, "queue", None)  # a child process does not know it
            times.note(None if queue is None else queue.name, delivery.task, clock.monotonic() - began, failure)
