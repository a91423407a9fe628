"""Workers read messages, run handlers, extend leases, settle deliveries, and drain on SIGTERM.

`Worker` is for a `Queue` and plain functions (in threads, or in child processes), `AsyncWorker` for an `AsyncQueue` and
`async def` handlers. Both are driven by the state machine of `shardq.worker.state`, and in both a thread (`keeper`)
extends the leases.
"""

from __future__ import annotations

from shardq.worker.aio import AsyncWorker
from shardq.worker.threads import Worker

__all__ = ["AsyncWorker", "Worker"]
