"""What ends by time ends in each partition, also where nothing is to be delivered: somebody who reads sees to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shardq import Client, NoResult, Queue
from shardq.ops.inspect.stats import numbers
from shardq.ops.queue.steps import Batch, Call, Step
from shardq.partitions.homes import home
from shardq.partitions.upkeep import UPKEEP_INTERVAL
from shardq.testing import ManualClock
from tests.servers import Server
from tests.simulated import clocked_client

PARTITIONS = 3
TENANTS = {home(f"tenant-{number}", PARTITIONS): f"tenant-{number}" for number in range(20)}
TTL = 600.0
Opened = Callable[[], Client]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def opened(server: Server, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    drivers = []

    def open_client() -> Client:
        client, driver = clocked_client(server, clock)
        drivers.append(driver)
        monkeypatch.setattr(client, "_run_in_background", client.run)  # so a read has seen what it did
        return client

    yield open_client
    for driver in drivers:
        driver._connection.close()


@pytest.fixture
def queue(opened: Opened, queue_name: str) -> Queue:
    queue = opened().queue(
        queue_name, partitions=PARTITIONS, streams=2, streams_per_shard=2, result_ttl=TTL, dead_ttl=TTL
    )
    queue.write_many([(n, TENANTS[2]) for n in range(2)])
    first, second = queue.read_many(2)
    first.ack(result="kept")
    second.reject("bad")
    return queue


def results(queue: Any, number: int) -> int:
    """How many results a partition has."""
    return int(queue.client.run(numbers(queue.state.parts.states[number])).result_count)


def called(queue: Any, number: int) -> list[str]:
    """The verbs that its client calls in a partition from now on."""
    found: list[str] = []

    def note(step: Step, is_done: bool) -> None:
        calls = [each.call for each in step.calls] if isinstance(step, Batch) else [step]
        mark = f"{{{queue.state.parts.states[number].keys.tag}}}"
        found.extend(each.script.name for each in calls if is_done and isinstance(each, Call) and mark in each.key)

    queue.client._driver.hook = note
    return found


def works_elsewhere(queue: Queue) -> None:
    """Read, and each time there is a message of partition 0."""
    queue.write("x", shard_key=TENANTS[0])
    (delivery,) = queue.read_many(1)
    assert delivery.payload == "x"
    delivery.ack()


@pytest.mark.parametrize("is_new", [False, True])
def test_results_and_dead_letters_end_in_a_partition_to_which_no_read_goes(
    opened: Opened, clock: ManualClock, queue: Queue, is_new: bool
) -> None:
    reading = opened().queue(queue.name) if is_new else queue
    works_elsewhere(reading)
    calls = called(reading, 2)
    clock.advance(TTL / 2)
    works_elsewhere(reading)
    assert results(queue, 2) == 1
    clock.advance(TTL)
    works_elsewhere(reading)
    assert results(queue, 2) == 0
    assert calls.count("forget_results") == calls.count("delete_dead") == 2, "at most one a minute of each"
    assert "read" not in calls


def test_a_time_that_is_set_later_is_heard_of_there(opened: Opened, clock: ManualClock, queue: Queue) -> None:
    queue.configure(dead_ttl=None)
    reading = opened().queue(queue.name)
    works_elsewhere(reading)
    calls = called(reading, 2)
    clock.advance(60.0)
    works_elsewhere(reading)
    assert "delete_dead" not in calls
    queue.configure(dead_ttl=30.0)
    for _ in range(3):
        clock.advance(60.0)
        works_elsewhere(reading)
    assert "delete_dead" in calls


def test_nothing_is_called_where_nothing_can_end(opened: Opened, clock: ManualClock, queue_name: str) -> None:
    queue = opened().queue(queue_name, partitions=PARTITIONS, streams=2, streams_per_shard=2)
    queue.write_many([*TENANTS.items()])
    queue.ack_many(queue.read_many(PARTITIONS))
    calls = called(queue, 2)
    for _ in range(3):
        clock.advance(2 * UPKEEP_INTERVAL)
        works_elsewhere(queue)
    assert set(calls) <= {"glance", "open"}
    assert calls.count("open") <= 1, "what is known there is looked up once"


def test_a_result_is_over_in_its_time_whoever_forgets_it(clock: ManualClock, queue: Queue) -> None:
    done = queue.write("again", shard_key=TENANTS[2])
    queue.read().ack(result="kept")
    assert queue.result(done) == "kept"
    clock.advance(TTL + 1)
    assert results(queue, 2) == 2
    with pytest.raises(NoResult, match="long enough"):
        queue.result(done)
