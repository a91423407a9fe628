"""Facts for tests of the outlook: a queue at noon, of which each test says what matters to it."""

from __future__ import annotations

from typing import Any

from shardq.model.failure import Failure
from shardq.model.minute import Minute, TaskMinute
from shardq.model.stats import QueueStats
from shardq.model.waiter import Waiter, Waiters
from shardq.model.worker_status import TaskWork, TenantWork, WorkerState, WorkerStatus
from shardq.outlook.facts import Facts

NOON = 1_795_867_200.0
"""Saturday, 28 November 2026, 12:00 UTC."""


def stats(**numbers: Any) -> QueueStats:
    """Return the numbers of a queue, of which all that wait are runnable unless it is said."""
    known: dict[str, Any] = {
        "queue": "jobs", "time": NOON, "backlog": 0, "in_flight": 0, "delayed": 0, "dead": 0, "oldest_age": None,
    } | numbers  # fmt: skip
    known.setdefault("runnable", known["backlog"] - known.get("limited", 0))
    return QueueStats(streams=(0,), **known)


def worker(
    name: str = "w1",
    *,
    state: WorkerState = "working",
    heard: float = NOON - 2,
    slots: int = 8,
    busy: float = 8.0,
    done: int = 600,
    failed: int = 0,
    seconds: float = 0.8,
    tenants: tuple[TenantWork, ...] = (),
    others: tuple[int, ...] = (),
    host: str = "host",
) -> WorkerStatus:
    """Return a worker that did one task for longer than a minute."""
    return WorkerStatus(
        name, "jobs", state, heard, heard - 3600, "1", host, 1, slots, busy, None, "", "", 0, done, failed,
        (TaskWork("task", done, failed, seconds),), tenants, others,
    )  # fmt: skip


def minutes(
    count: int,
    *,
    written: int | list[int] = 0,
    done: int = 0,
    runnable: int = 0,
    slots: int = 8,
    busy: float = 0.0,
    oldest_age: float | None = None,
    tasks: tuple[TaskMinute, ...] = (),
    last: float = NOON - 60,
) -> tuple[Minute, ...]:
    """Return the last minutes, the oldest first; in each as much was written, or what a list says."""
    each = written if isinstance(written, list) else [written] * count
    return tuple(
        Minute(
            last - 60 * (count - 1 - at), each[at], done, 0, 0, runnable, runnable, 0, oldest_age, 1, slots, busy, tasks
        )
        for at in range(count)
    )


def group(task: str = "mail.send_receipt", error: str = "TimeoutError", **more: Any) -> Failure:
    """Return a group of tries that failed, 2,104 lately, since three minutes ago."""
    known: dict[str, Any] = {
        "reason": "retry", "retried": 2104, "dead": 0, "first": NOON - 180, "last": NOON - 1, "newest": "1-1-o",
        "minutes": (0,) * 11 + (2104,), "recent": 2104, "tenants": ("acme",), "tenants_lately": 9,
    } | more  # fmt: skip
    return Failure(task, error, **known)


def facts(
    given: QueueStats | None = None, rows: tuple[Waiter, ...] = (), *, are_all: bool = True, **more: Any
) -> Facts:
    """Return facts. Of `Waiters`, which may be given by name, the rest is as usual."""
    known = {name: more.pop(name) for name in Waiters.__struct_fields__ if name in more}
    waiters = Waiters(time=NOON, rows=rows, are_all=are_all, **known)
    given = given or stats(backlog=sum(each.backlog for each in rows), delayed=sum(each.delayed for each in rows))
    return Facts(given, waiters, **more)
