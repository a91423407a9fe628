"""The names of others, and texts that are no names, where no rule knows them: why each may stand in a page."""

from __future__ import annotations

import re

OTHERS = {
    "a product, or a word of one": (
        "BullMQ", "DuckDB", "FastAPI", "MQTTMatcher", "MessagePack", "NaN", "OpenTelemetry",
        "PyArrow", "PyPI", "PySpark", "RabbitMQ", "TypedDicts",
    ),
    "a setting of Celery, and a field of SQS, which pages compare": ("acks_late", "MessageId"),
    "columns of FOCUS, the open standard of bills": ("BilledCost", "ChargePeriodStart", "SubAccountId"),
    "Django's": ("InvalidTask", "ImmediateBackend", "TaskResultDoesNotExist", "robust"),
    "systemd's, Docker's, or uvicorn's": (
        "EnvironmentFile=", "docker run --init", "docker stop", "docker stop --time 30",
        "stop_grace_period: 30s", "uvicorn --timeout-graceful-shutdown 2", "uvicorn --workers 4",
    ),
    "gRPC's, or HTTP's": (
        "GRPC_ENABLE_FORK_SUPPORT", "INVALID_ARGUMENT", "Idempotency-Key", "NOT_SERVING",
        "Origin", "POST act/NAME", "RESOURCE_EXHAUSTED", "Watch", "authorization: Bearer TOKEN",
        "grpc.health.v1.Health/Check",
    ),
    "Kubernetes', or KEDA's": (
        "AverageValue", "FromEnv", "cooldownPeriod", "fallback",
        "PodMonitor", "pollingInterval", "tcpSocket",
    ),
    "alerts: tests/examples/test_monitoring.py compares them with their file": (
        "ShardqBlind", "ShardqDeadGrows", "ShardqFailing", "ShardqLeasesLost", "ShardqNeverDrains", "ShardqNoWorker",
        "ShardqOldestAge", "ShardqPausedForgotten", "ShardqRedisFull",
    ),
    "a line of the file of people; tests/dashboard/test_login.py reads one": ("expires = 2027-01-31T00:00:00Z",),
    "a path of a server of HTTP": ("/healthz", "/metrics", "/readyz"),
    "Redis tells it while an append-only file is on, which is off in tests": ("aof_delayed_fsync",),
    "a call of the operating system": ("fallocate",),
    "Spark's": (
        "lastProgress", "sortWithinPartitions",
    ),
    "a command that is not ours": ("nohup",),
    "a folder outside of the checkout, which CI's own runs make": ("~/.cache/shardq/flickers",),
    "an example, of a file beside a spool or of what somebody might call something": (
        "file:/etc/shardq/url", "utils", "verb_noun",
        'with extra("edge"):',
    ),
    "the text beside it says what its parts are": ("place:id:count:holder:marks:key", "verbs.name"),
    "a stream by its number": (":s0", ":sN-1"),
    "msgspec says it": ("width: expected int, got str",),
}  # fmt: skip
"""Names by reason."""

TEXTS = {
    r"spark-submit .*": "a command that is not ours",
    r"payload[^:]*: .*|payload struct<.*>": "tests/spark compares this table with what happens",
    r"shardq/1|out\[.*": "bytes of the golden vectors, which tests/golden compares",
}
"""Patterns of spans by reason."""


def entry(text: str) -> str:
    """The entry that *text* is or fits; nothing if there is none."""
    if any(text in names for names in OTHERS.values()):
        return text
    return next((pattern for pattern in TEXTS if re.fullmatch(pattern, text)), "")


def entries() -> set[str]:
    """All of them."""
    return {*TEXTS, *(name for names in OTHERS.values() for name in names)}
