"""A queue with tenants for tests in which clients of a version before partitions are beside others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from shardq import Client, Queue
from shardq.partitions import asking, parts, resize
from shardq.partitions.homes import home
from tests.servers import Cluster

PARTITIONS: Final = 3
TENANTS: Final = [f"tenant-{number}" for number in range(20)]
OTHERS: Final = [each for each in TENANTS if home(each, PARTITIONS)]
"""Those that do not live in the head."""
SOON: Final = 60.0
"""Seconds."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map is old after a tenth of the time. (A former client knows of none.)"""
    for room in (asking, parts):
        monkeypatch.setattr(room, "MAX_AGE", 0.5)
    monkeypatch.setattr(resize, "PAUSE_SECONDS", 1.0)


@pytest.fixture
def queue(cluster: Cluster, queue_name: str) -> Iterator[Queue]:
    with Client.from_url(cluster.url, timeout=SOON) as client:
        queue = client.queue(queue_name, streams=4, streams_per_shard=2)
        queue.declare()
        yield queue
