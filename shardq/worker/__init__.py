"""Workers read messages, run handlers, extend leases, settle deliveries, and drain on SIGTERM.

`Worker` is for a `Queue`, `AsyncWorker` for an `AsyncQueue` and the event loop of a program. Both run plain functions
in threads, a `Worker` also in child processes, and `async def` functions in an event loop, by one engine (`lane`). The
state machine of `shardq.worker.state` drives it. A thread (`keeper`) extends the leases.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardq.worker.workers import AsyncWorker, Worker

__all__ = ["AsyncWorker", "Worker"]


def __getattr__(name: str) -> object:
    """Import a worker when it is asked for: a web server that writes calls of tasks needs none."""
    if name in __all__:
        return getattr(import_module("shardq.worker.workers"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
