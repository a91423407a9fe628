"""Several partitions on one node that does not answer in time: their calls went to it together, and end each alone."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from shardq import Client
from shardq.partitions.homes import home
from tests.servers import Server
from tests.waiting import eventually

PARTITIONS = 3
TENANTS = {home(f"tenant-{number}", PARTITIONS): f"tenant-{number}" for number in range(20)}
ROUNDS = 5
SOON = 60.0

pytestmark = pytest.mark.runs_in("test-all")


def late_threads() -> int:
    return sum(1 for each in threading.enumerate() if each.name == "shardq-late")


def left_alone(reading: Future[Any]) -> None:
    """Wait until the calls of a read are late, or it is over."""
    eventually(lambda: late_threads() == PARTITIONS or reading.done(), SOON)


def test_what_comes_late_from_one_node_is_delivered_once(server: Server, queue_name: str) -> None:
    """An error in a thread fails this test, too."""
    with Client.from_url(server.url) as client, ThreadPoolExecutor(1) as pool:
        queue: Any = client.queue(queue_name, partitions=PARTITIONS, streams=4, streams_per_shard=2)
        queue.write_many([(None, tenant) for tenant in TENANTS.values()])
        queue.ack_many(queue.read_many(PARTITIONS))
        for _ in range(ROUNDS):
            queue.write_many([(None, tenant) for tenant in TENANTS.values()])
            found: list[Any] = []
            server.pause()
            try:
                reading = pool.submit(queue.read_many, PARTITIONS)
                left_alone(reading)
            finally:
                server.resume()
            found += reading.result(SOON)
            while len(found) < PARTITIONS:
                found += queue.read_many(PARTITIONS, block=SOON)
            assert [each.count for each in found] == [1] * PARTITIONS
            assert queue.ack_many(found) == []
            eventually(lambda: late_threads() == 0, SOON)
            eventually(lambda: queue.state.parts.away.numbers == frozenset(), SOON)
        assert queue.len() == 0
