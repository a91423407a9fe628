"""Time that passes when a test says so: for workers by their clock, for leases by what Redis knows of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shardq import Queue
from shardq.clock import SystemClock

_EARLIER: Final = "return redis.call('ZADD', KEYS[1], 'XX', 'INCR', ARGV[1], ARGV[2])"


class Forward(SystemClock):
    """The machine's clock, put forward."""

    def __init__(self) -> None:
        self.by = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.by


def end_leases_earlier(run: Callable[..., Any], jobs: Queue, seconds: float) -> None:
    """Move the ends of all leases of *jobs* closer, in Redis; *run* runs a command there."""
    for index in (jobs.state.keys.leases, jobs.state.keys.due):
        for member in run("ZRANGE", index, 0, -1):
            if member:
                # By a script, since redis-py takes what INCR returns for a whole number, and a lease has none.
                run("EVAL", _EARLIER, 1, index, round(-seconds * 1000), member)
    run("HINCRBY", jobs.state.keys.meta, "lease_at", round(-seconds * 1000))
