"""Errors of a queue with partitions speak of the queue, by the ids and the name that users know."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardq import (
    MessageDead,
    MessageNotFound,
    NoResult,
    PartlyWritten,
    Queue,
    QueueMissing,
    ResultPending,
    ScheduleNotFound,
    ShardqError,
    UniqueConflict,
)
from shardq.partitions.homes import home
from shardq.tasks import Tasks
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

PARTITIONS = 3
TENANTS = {home(f"tenant-{number}", PARTITIONS): f"tenant-{number}" for number in range(20)}
tasks = Tasks("errors")


@tasks.task
def noted(text: str) -> str:
    """A task whose results are asked for."""
    return text


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """The test's queue, with partitions and results."""
    queue = open_queue(partitions=PARTITIONS, streams=8, streams_per_shard=2, result_ttl=60)
    queue.declare()
    return queue


def said(kind: type[ShardqError], call: Callable[[], object]) -> str:
    """What the error of a call says."""
    with pytest.raises(kind) as caught:
        call()
    assert "#" not in str(caught.value)
    return str(caught.value)


def test_an_error_names_a_message_by_its_id(queue: Queue) -> None:
    message_id = queue.write("x", shard_key=TENANTS[2])
    assert message_id.endswith("@2")
    assert message_id in said(ResultPending, lambda: queue.result(message_id, timeout=0))
    queue.read().reject("bad")
    assert message_id in said(MessageDead, lambda: queue.result(message_id, timeout=0))
    queue.delete_dead(ids=[message_id])
    assert message_id in said(MessageNotFound, lambda: queue.cancel(message_id))
    assert message_id in said(NoResult, lambda: queue.result(message_id, timeout=0))


@pytest.mark.once
def test_an_error_of_a_job_names_its_message(queue: Queue) -> None:
    job = queue.write(noted.call("x"), shard_key=TENANTS[2])
    assert str(job) in said(ResultPending, lambda: job.result(timeout=0))


def test_a_conflict_names_the_message_and_the_queue(queue: Queue) -> None:
    first = queue.write("x", shard_key=TENANTS[1], unique_key="k")

    def again() -> None:
        queue.write("x", shard_key=TENANTS[1], unique_key="k", on_conflict="raise")

    text = said(UniqueConflict, again)
    assert first in text
    assert repr(queue.name) in text


def test_what_a_batch_failed_of_names_the_queue(open_queue: OpenQueue) -> None:
    queue = open_queue(partitions=PARTITIONS, streams=8, streams_per_shard=2, max_len=PARTITIONS)
    assert repr(queue.name) in said(PartlyWritten, lambda: queue.write_many([("x", TENANTS[2])] * 2))


def test_a_queue_that_is_gone_is_missing_by_its_name(world: World, queue: Queue) -> None:
    other = world.client().queue(queue.name)
    assert other.stats().queue == queue.stats().queue == queue.name
    queue.delete(expected=None)
    assert repr(queue.name) in said(QueueMissing, other.stats)
    assert repr(queue.name) in said(QueueMissing, other.purge)


def test_a_schedule_that_is_not_there_is_not_in_the_queue(queue: Queue) -> None:
    assert repr(queue.name) in said(ScheduleNotFound, lambda: queue.schedules.run("none"))
