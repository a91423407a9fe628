"""The instruments: what shardq measures, by the names of OpenTelemetry and of Prometheus, with units and buckets.

Names of the first four follow OpenTelemetry's semantic conventions for messaging (v1.44, status Development), which
may change: they are in this module only.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram", "sum"]
"""A counter grows only; a sum is added to and taken from; a gauge is set; a histogram counts values by buckets."""


class Instrument(NamedTuple):
    """One instrument: its name in OpenTelemetry, and `text`, its name in Prometheus's text."""

    name: str
    text: str
    kind: Kind
    unit: str
    about: str
    labels: tuple[str, ...] = ()
    """Attributes besides the system, the queue and the server."""
    buckets: tuple[float, ...] = ()
    """The upper bounds of a histogram's buckets, in its unit; one more holds what is above."""


# Attributes, and what they are called as labels of Prometheus's text
QUEUE: Final = "messaging.destination.name"
SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
ERROR: Final = "error.type"
TASK: Final = "shardq.task"
REASON: Final = "shardq.reason"
REDELIVERED: Final = "shardq.redelivered"
TENANT: Final = "shardq.tenant"
PARTITION: Final = "shardq.partition"
ADDRESS: Final = "server.address"
PORT: Final = "server.port"
VERSION: Final = "shardq.version"
OPERATION_TYPES: Final = {
    "write": "send", "read": "receive", "process": "process", "ack": "settle", "nack": "settle", "reject": "settle",
}  # fmt: skip
"""The types of operations, by their names; the conventions have none for extend."""
LABELS: Final = {
    QUEUE: "queue",
    OPERATION: "operation",
    ERROR: "error",
    TASK: "task",
    REASON: "reason",
    REDELIVERED: "redelivered",
    TENANT: "tenant",
    PARTITION: "partition",
    VERSION: "version",
}

OPERATION_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
PROCESS_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
PICKUP_SECONDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0),
)


def _queue(name: str, kind: Kind, unit: str, about: str, suffix: str = "") -> Instrument:
    return Instrument(f"shardq.queue.{name}", f"shardq_queue_{name}{suffix}", kind, unit, about)


DURATION: Final = Instrument(
    "messaging.client.operation.duration",
    "messaging_client_operation_duration_seconds",
    "histogram",
    "s",
    "How long calls of a client took",
    (OPERATION, OPERATION_TYPE, ERROR),
    OPERATION_SECONDS,
)
SENT: Final = Instrument(
    "messaging.client.sent.messages",
    "messaging_client_sent_messages_total",
    "counter",
    "{message}",
    "Messages that were written",
    (OPERATION, ERROR),
)
CONSUMED: Final = Instrument(
    "messaging.client.consumed.messages",
    "messaging_client_consumed_messages_total",
    "counter",
    "{message}",
    "Messages that were read",
    (OPERATION, ERROR),
)
PROCESS: Final = Instrument(
    "messaging.process.duration",
    "messaging_process_duration_seconds",
    "histogram",
    "s",
    "How long jobs ran",
    (OPERATION, TASK, ERROR),
    PROCESS_SECONDS,
)
PICKUP: Final = Instrument(
    "shardq.message.pickup_delay",
    "shardq_message_pickup_delay_seconds",
    "histogram",
    "s",
    "How long messages waited from the moment when they could first be read, by the server's clock",
    (REDELIVERED,),
    PICKUP_SECONDS,
)
RETRIED: Final = Instrument(
    "shardq.message.retried",
    "shardq_message_retried_total",
    "counter",
    "{message}",
    "Messages that wait for another try",
    (REASON, TASK),
)
DEAD_LETTERED: Final = Instrument(
    "shardq.message.dead_lettered",
    "shardq_message_dead_lettered_total",
    "counter",
    "{message}",
    "Messages that became dead letters",
    (REASON, TASK),
)
LEASE_LOST: Final = Instrument(
    "shardq.message.lease_lost",
    "shardq_message_lease_lost_total",
    "counter",
    "{message}",
    "Messages whose lease ended while a job ran",
    (REASON, TASK),
)
REFUSED: Final = Instrument(
    "shardq.message.refused",
    "shardq_message_refused_total",
    "counter",
    "{message}",
    "Messages that a queue did not take",
    (REASON,),
)
SLOTS: Final = Instrument("shardq.worker.slots", "shardq_worker_slots", "sum", "{job}", "Jobs that may run at once")
BUSY: Final = Instrument("shardq.worker.busy", "shardq_worker_busy", "sum", "{job}", "Jobs that run")
OLDEST_JOB: Final = Instrument(
    "shardq.worker.oldest_job", "shardq_worker_oldest_job_seconds", "gauge", "s", "How long the oldest job has run"
)

BACKLOG: Final = _queue("backlog", "gauge", "{message}", "Messages that wait and are due, held back or not")
RUNNABLE: Final = _queue("runnable", "gauge", "{message}", "Messages that a read could deliver now")
HELD_BACK: Final = _queue("held_back", "gauge", "{message}", "Messages that wait in the overflows of their tenants")
LIMITED: Final = _queue("limited", "gauge", "{message}", "Messages that wait for a limit or pause of their tenant")
IN_FLIGHT: Final = _queue("in_flight", "gauge", "{message}", "Messages that are delivered and not settled")
DELAYED: Final = _queue("delayed", "gauge", "{message}", "Messages that wait for their time or their next try")
DUE_SOON: Final = _queue("due_soon", "gauge", "{message}", "Delayed messages that are due within 60 s")
DEAD: Final = _queue("dead", "gauge", "{message}", "Dead letters")
TENANTS_WAITING: Final = _queue(
    "tenants_waiting", "gauge", "{tenant}", "Tenants that wait for a turn, besides those that have messages in streams"
)
OLDEST_AGE: Final = _queue("oldest_age", "gauge", "s", "How long the oldest runnable message has waited", "_seconds")
DRAIN_TIME: Final = _queue("drain_time", "gauge", "s", "Until the queue is drained at its present rate", "_seconds")
WORKERS: Final = _queue("workers", "gauge", "{worker}", "Workers that read the queue")
QUEUE_SLOTS: Final = _queue("slots", "gauge", "{job}", "Jobs that these workers may run at once")
PAUSED: Final = _queue("paused", "gauge", "1", "1 if the queue is paused")
PAUSE_LEFT: Final = _queue("pause_left", "gauge", "s", "Until the pause of the queue ends by itself", "_seconds")
WRITTEN: Final = _queue("written", "counter", "{message}", "Messages that were written", "_total")
DELIVERED: Final = _queue("delivered", "counter", "{message}", "Deliveries of messages", "_total")
REDELIVERED_COUNT: Final = _queue("redelivered", "counter", "{message}", "Deliveries that were not the first", "_total")
ACKED: Final = _queue("acked", "counter", "{message}", "Messages that were acked", "_total")
EXPIRED: Final = _queue("expired", "counter", "{message}", "Messages that expired before they were read", "_total")
CANCELLED: Final = _queue("cancelled", "counter", "{message}", "Messages that were cancelled", "_total")
PURGED: Final = _queue("purged", "counter", "{message}", "Messages that a purge removed", "_total")
DEAD_LETTERED_COUNT: Final = _queue(
    "dead_lettered", "counter", "{message}", "Messages that became dead letters", "_total"
)
VANISHED: Final = _queue("vanished", "counter", "{message}", "Messages that were gone from a stream", "_total")

TENANT_BACKLOG: Final = Instrument(
    "shardq.tenant.backlog", "shardq_tenant_backlog", "gauge", "{message}", "Messages of a tenant that wait", (TENANT,)
)
TENANT_IN_FLIGHT: Final = Instrument(
    "shardq.tenant.in_flight",
    "shardq_tenant_in_flight",
    "gauge",
    "{message}",
    "Messages of a tenant in flight",
    (TENANT,),
)
TENANT_PICKUP: Final = Instrument(
    "shardq.tenant.pickup_p99",
    "shardq_tenant_pickup_p99_seconds",
    "gauge",
    "s",
    "Pick-up delay of a tenant, p99",
    (TENANT,),
)

PARTITION_BACKLOG: Final = Instrument(
    "shardq.partition.backlog",
    "shardq_partition_backlog",
    "gauge",
    "{message}",
    "Messages of a partition that wait",
    (PARTITION,),
)
PARTITION_IN_FLIGHT: Final = Instrument(
    "shardq.partition.in_flight",
    "shardq_partition_in_flight",
    "gauge",
    "{message}",
    "Messages of a partition in flight",
    (PARTITION,),
)
PARTITION_DELIVERED: Final = Instrument(
    "shardq.partition.delivered",
    "shardq_partition_delivered_total",
    "counter",
    "{message}",
    "Deliveries of messages of a partition",
    (PARTITION,),
)

UP: Final = Instrument("shardq.up", "shardq_up", "gauge", "1", "1 if Redis told the numbers of the queue, else 0")
POLL_AGE: Final = Instrument(
    "shardq.poll_age", "shardq_poll_age_seconds", "gauge", "s", "Since Redis told the numbers of the queue last"
)
MEMORY_RATIO: Final = Instrument(
    "shardq.redis.memory_ratio",
    "shardq_redis_memory_ratio",
    "gauge",
    "1",
    "Memory in use, as a share of what Redis may use; the fullest of several servers",
)
OUT_OF_MEMORY: Final = Instrument(
    "shardq.redis.out_of_memory",
    "shardq_redis_out_of_memory_total",
    "counter",
    "{command}",
    "Commands that Redis refused since it was full",
)
BUILD: Final = Instrument("shardq.build_info", "shardq_build_info", "gauge", "1", "The version of shardq", (VERSION,))

INSTRUMENTS: Final = tuple(each for each in list(globals().values()) if isinstance(each, Instrument))
"""All of them, in the order of the table in docs/telemetry.md."""
