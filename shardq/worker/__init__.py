"""Workers: they read, run handlers, keep leases alive, settle, and drain on SIGTERM.

`Worker` is for a `Queue` and plain functions (in threads, or in child processes), `AsyncWorker` for an `AsyncQueue` and
`async def` handlers: each face of the client has its own, so that a handler's own calls to Redis are of the same kind
as the worker's. Both run the machine of `shardq.worker.state`. Leases are kept by a thread (`keeper`) in both.
"""

from __future__ import annotations

from shardq.worker.aio import AsyncWorker
from shardq.worker.threads import Worker

__all__ = ["AsyncWorker", "Worker"]
