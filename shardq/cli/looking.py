"""The questions of a screen to a queue: its numbers, its outlook and its verdict, as far as this user may ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from shardq.clock import SystemClock
from shardq.errors import BackendError, BackendTimeout
from shardq.outlook import crew
from shardq.outlook.queues import QueueLook

if TYPE_CHECKING:
    from shardq.cli.shell import Shell
    from shardq.client import Queue
    from shardq.model import QueueStats, Verdict

T = TypeVar("T")


def looked_at(queue: Queue, stats: QueueStats | None) -> QueueLook:
    """The queue with what is reckoned of it. A user who may read numbers alone gets no more than these."""
    if stats is None or not stats.streams:
        return QueueLook(queue.name, stats)
    return QueueLook(queue.name, stats, allowed(queue.verdict), allowed(queue.outlook))


def allowed(ask: Callable[[], T]) -> T | None:
    """The answer; None if this user may not ask."""
    try:
        return ask()
    except BackendTimeout:
        raise
    except BackendError:
        return None


def is_unread(queue: Queue, verdict: Verdict | None) -> bool:
    """Whether messages wait that nobody reads, as far as this user may ask."""
    if verdict is None:
        return False
    return crew.is_unread(verdict, allowed(queue.outlook) if verdict.kind == "redis_full" else None)


def time_of(shell: Shell, names: Sequence[str]) -> float:
    """The server's time, as it tells it with the numbers of a queue; this machine's where there is none."""
    from shardq.ops.inspect.stats import numbers

    stats = allowed(lambda: shell.client.run(numbers(shell.queue(names[0]).state))) if names else None
    return stats.time if stats is not None else SystemClock().wall()
