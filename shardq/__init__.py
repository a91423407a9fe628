"""shardq: a work queue on Redis for many tenants that share one pool of workers.

::

    client = Client.from_url("redis://localhost:6379")
    jobs = client.queue("predictions", streams=64, streams_per_shard=4, visibility_timeout=30)
    jobs.write({"prompt": "a cat"}, shard_key="tenant-42")
    delivery = jobs.read(block=5)
    delivery.ack()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardq.errors import (
    BackendError,
    BackendTimeout,
    ClosedError,
    CodecError,
    ConfigError,
    DurabilityUnknown,
    Empty,
    ExtraMissing,
    LeaseLost,
    MessageCancelled,
    MessageDead,
    MessageNotFound,
    MessageRefused,
    NoResult,
    NotAvailable,
    NotHere,
    OutcomeUnknown,
    OutOfMemory,
    PartlyDone,
    PartlyPublished,
    PartlyWritten,
    PatternError,
    PipelineFailed,
    ProcessDied,
    QueueFull,
    QueueMissing,
    QueueNotEmpty,
    ResultPending,
    ScheduleNotFound,
    ServerUnfit,
    ShardqError,
    SpoolDamaged,
    SpoolFull,
    UniqueConflict,
    Unrouted,
)
from shardq.later import names_from as _names_from
from shardq.version import __version__ as __version__

if TYPE_CHECKING:
    from shardq.client import (
        Action,
        AsyncAction,
        AsyncClient,
        AsyncDelivery,
        AsyncQueue,
        AsyncWriter,
        Client,
        Delivery,
        Queue,
        Writer,
    )
    from shardq.model import (
        ActionStatus,
        Control,
        Controls,
        DeadLetter,
        Event,
        Failure,
        Help,
        JournalPage,
        LimitControl,
        Limits,
        Message,
        MessageStatus,
        Minute,
        Neighbour,
        Outlook,
        PeekedMessage,
        PeekedPage,
        Plan,
        Progress,
        Purged,
        QueueConfig,
        QueueSettings,
        QueueStats,
        Schedule,
        TaskMinute,
        TaskWork,
        Tenant,
        TenantOutlook,
        TenantWork,
        Verdict,
        WeightControl,
        Where,
        WorkerStatus,
        Written,
    )
    from shardq.telemetry import Spans
    from shardq.worker import AsyncWorker, Worker
    from shardq.worker.outcome import Nack, Reject, TimeLimit


__all__ = [
    "Action",
    "ActionStatus",
    "AsyncAction",
    "AsyncClient",
    "AsyncDelivery",
    "AsyncQueue",
    "AsyncWorker",
    "AsyncWriter",
    "BackendError",
    "BackendTimeout",
    "Client",
    "ClosedError",
    "CodecError",
    "ConfigError",
    "Control",
    "Controls",
    "DeadLetter",
    "Delivery",
    "DurabilityUnknown",
    "Empty",
    "Event",
    "ExtraMissing",
    "Failure",
    "Help",
    "JournalPage",
    "LeaseLost",
    "LimitControl",
    "Limits",
    "Message",
    "MessageCancelled",
    "MessageDead",
    "MessageNotFound",
    "MessageRefused",
    "MessageStatus",
    "Minute",
    "Nack",
    "Neighbour",
    "NoResult",
    "NotAvailable",
    "NotHere",
    "OutOfMemory",
    "OutcomeUnknown",
    "Outlook",
    "PartlyDone",
    "PartlyPublished",
    "PartlyWritten",
    "PatternError",
    "PeekedMessage",
    "PeekedPage",
    "PipelineFailed",
    "Plan",
    "ProcessDied",
    "Progress",
    "Purged",
    "Queue",
    "QueueConfig",
    "QueueFull",
    "QueueMissing",
    "QueueNotEmpty",
    "QueueSettings",
    "QueueStats",
    "Reject",
    "ResultPending",
    "Schedule",
    "ScheduleNotFound",
    "ServerUnfit",
    "ShardqError",
    "Spans",
    "SpoolDamaged",
    "SpoolFull",
    "TaskMinute",
    "TaskWork",
    "Tenant",
    "TenantOutlook",
    "TenantWork",
    "TimeLimit",
    "UniqueConflict",
    "Unrouted",
    "Verdict",
    "WeightControl",
    "Where",
    "Worker",
    "WorkerStatus",
    "Writer",
    "Written",
]


if not TYPE_CHECKING:  # type checkers know all names from above, and tell of others
    # A program loads what it uses: the help of the command needs no client, and few need both kinds.
    __getattr__ = _names_from(
        __name__,
        dict.fromkeys(__all__, "shardq.model")
        | dict.fromkeys(
            (
                "Action",
                "AsyncAction",
                "AsyncClient",
                "AsyncDelivery",
                "AsyncQueue",
                "AsyncWriter",
                "Client",
                "Delivery",
                "Queue",
                "Writer",
            ),
            "shardq.client",
        )
        | dict.fromkeys(("AsyncWorker", "Worker"), "shardq.worker")
        | {"Spans": "shardq.telemetry"}
        | dict.fromkeys(("Nack", "Reject", "TimeLimit"), "shardq.worker.outcome"),
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
