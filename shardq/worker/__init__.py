"""Workers read messages, run handlers, extend leases, settle deliveries, and drain on SIGTERM.

`Worker` is for a `Queue` and plain functions (in threads, or in child processes), `AsyncWorker` for an `AsyncQueue` and
`async def` handlers. Both are driven by the state machine of `shardq.worker.state`, and in both a thread (`keeper`)
extends the leases.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardq.worker.aio import AsyncWorker
    from shardq.worker.threads import Worker

__all__ = ["AsyncWorker", "Worker"]
_MODULES = {"AsyncWorker": "shardq.worker.aio", "Worker": "shardq.worker.threads"}


def __getattr__(name: str) -> object:
    """Import a worker when it is asked for: a web server that writes calls of tasks needs none."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
