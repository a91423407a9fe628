"""A worker's report in its last beat."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

WorkerState: TypeAlias = Literal["working", "gone", "ended"]
"""The state of a worker: "gone" is one that was silent for 30 s, "ended" one that said that it ends."""


class TaskWork(msgspec.Struct, frozen=True):
    """The work of a worker on one task in its last minute: jobs *done*, jobs *failed*, and their mean in *seconds*.

    `task` is the task's name. `Queue.workers` returns them in a `WorkerStatus`.
    """

    task: str
    done: int
    failed: int
    seconds: float


class TenantWork(msgspec.Struct, frozen=True):
    """The work of a worker for one tenant in its last minute: jobs *done*, and two figures in seconds.

    `seconds` is the mean of a job, `pickup_p99` how long 99 of 100 of the tenant's messages waited until a worker had
    them (None if none came).

    `shard_key` is the tenant. `Queue.workers` returns them in a `WorkerStatus`.
    """

    shard_key: str | bytes
    done: int
    seconds: float
    pickup_p99: float | None


class WorkerStatus(msgspec.Struct, frozen=True):
    """One worker of one queue, as its last beat told. Times are seconds since the epoch, by the server's clock.

    `id` is the name of its client with its process, and the same for all of its queues. `heard` is when it was last
    heard, `state` what that means now, `started` when it began. `slots` is how many jobs it can do at once, `busy` how
    many ran at the mean of its last beat. The job that has run for the longest began at `longest_since` (None: none
    runs), with the id `longest_message` and the task `longest_task` ('' where it is no call). `memory` is the memory of
    its processes in bytes, `memory_limit` what its container or service may take (None: no limit is known). `done` and
    `failed` count jobs of its last minute. `tasks` and `tenants` have at most 20 rows, the busiest first;
    `other_tenants` counts the pick-ups of all tenants by the upper bounds in `PICKUP_BOUNDS`.

    `Queue.workers` returns them. `queue` is the queue's name, `host` and `pid` say where the worker's process runs, and
    `version` is that of its shardq.
    """

    id: str
    queue: str
    state: WorkerState
    heard: float
    started: float
    version: str
    host: str
    pid: int
    slots: int
    busy: float
    longest_since: float | None
    longest_message: str
    longest_task: str
    memory: int
    done: int
    failed: int
    tasks: tuple[TaskWork, ...] = ()
    tenants: tuple[TenantWork, ...] = ()
    other_tenants: tuple[int, ...] = ()
    memory_limit: int | None = None


PICKUP_BOUNDS = (
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, float("inf"),
)  # fmt: skip
"""Upper bounds in seconds of the 16 buckets in which workers count durations and pick-ups."""
