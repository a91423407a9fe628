"""Outlook and verdict of a queue with partitions are reckoned from what all of them say together."""

from __future__ import annotations

import pytest

from shardq import Limits, Queue
from shardq.partitions.homes import home
from tests.conformance.conftest import OpenQueue
from tests.conformance.inspect.test_outlook import tell

PARTITIONS = 3
TENANTS = {home(f"tenant-{number}", PARTITIONS): f"tenant-{number}" for number in range(20)}


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """The test's queue, with partitions."""
    queue = open_queue(partitions=PARTITIONS, streams=8, streams_per_shard=2)
    queue.declare()
    return queue


def flooded(queue: Queue) -> dict[str, int]:
    """Let tenants of all partitions wait. Return how many messages each has."""
    waits = {tenant: 10 * (number + 1) for number, tenant in TENANTS.items()}
    queue.write_many([("x", tenant) for tenant, count in waits.items() for _ in range(count)])
    return waits


def test_who_waits_in_any_partition_is_told_by_how_much_waits(queue: Queue) -> None:
    waits = flooded(queue)
    tell(queue)
    outlook = queue.outlook()
    assert outlook.queue == queue.name
    assert (outlook.waits, outlook.tenants_waiting) == (sum(waits.values()), PARTITIONS)
    assert [(each.shard_key, each.waits) for each in outlook.tenants] == sorted(
        waits.items(), key=lambda each: -each[1]
    )
    assert (outlook.drains, outlook.workers, outlook.slots) == ("drains", 1, 8)


def test_one_is_asked_for_wherever_it_is(queue: Queue) -> None:
    flooded(queue)
    tell(queue)
    found = [each for each in queue.outlook("quiet").tenants if each.shard_key == "quiet"]
    assert found == []
    queue.write("x", shard_key="quiet")
    found = [each for each in queue.outlook("quiet").tenants if each.shard_key == "quiet"]
    assert [each.waits for each in found] == [1]


def test_what_waits_for_limits_and_pauses_is_told_of_all(queue: Queue) -> None:
    waits = flooded(queue)
    tell(queue)
    queue.pause(TENANTS[1])
    queue.set_limits({TENANTS[2]: Limits(max_in_flight=1)})
    reasons = queue.outlook().reasons
    assert reasons["pause"] == waits[TENANTS[1]]
    assert sum(reasons.values()) == sum(waits.values())
    queue.pause()
    assert queue.outlook().reasons["pause"] == sum(waits.values())
    assert queue.verdict().kind == "paused"


def test_that_nobody_reads_is_said_of_the_whole_queue(queue: Queue) -> None:
    waits = flooded(queue)
    verdict = queue.verdict()
    assert verdict.kind == "no_worker"
    assert str(sum(waits.values())) in verdict.sentence
    assert queue.history() == []


def test_who_reads_one_partition_reads_the_queue(queue: Queue) -> None:
    flooded(queue)
    held = queue.read_many(2)
    assert queue.outlook().is_read
    queue.ack_many(held)


def test_an_empty_queue_is_well(queue: Queue) -> None:
    assert queue.outlook().drains == "empty"
    assert queue.outlook().waits == 0
