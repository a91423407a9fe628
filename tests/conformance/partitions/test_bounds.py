"""Bounds and rates of a queue with partitions are those of the whole: nobody goes beyond them, and all read them so."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import ConfigError, Queue, QueueFull
from shardq.partitions.homes import home
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

PARTITIONS = 3
TENANTS = {home(f"tenant-{number}", PARTITIONS): f"tenant-{number}" for number in range(20)}
BOUNDS: dict[str, Any] = {
    "max_len": 10, "max_dead": 11, "max_dedup": 12, "total_in_flight": 4, "total_rate": 7.5, "total_burst": 5,
    "journal": 1000, "max_result_bytes": 100_000, "max_schedules": 7,
}  # fmt: skip
"""None of them is a multiple of the partitions."""


def opened(open_queue: OpenQueue, **settings: Any) -> Queue:
    """The test's queue, with partitions."""
    queue = open_queue(partitions=PARTITIONS, streams=8, streams_per_shard=2, **settings)
    queue.declare()
    return queue


def filled(queue: Queue, each: int = 10) -> int:
    """Write up to so many messages to each partition, until it is full. Return how many were written."""
    written = 0
    for tenant in TENANTS.values():
        for _ in range(each):
            try:
                queue.write("x", shard_key=tenant)
                written += 1
            except QueueFull:
                break
    return written


def test_what_the_user_set_is_what_everybody_reads(world: World, open_queue: OpenQueue) -> None:
    queue = opened(open_queue, **BOUNDS)
    others = world.client().queue(queue.name)
    for config in (queue.declare(), queue.settings(), others.settings()):
        assert {name: getattr(config, name) for name in BOUNDS} == BOUNDS
    changed = queue.configure(max_len=0, total_rate=100.0, total_burst=0, journal=0)
    assert (changed.max_len, changed.total_rate, changed.total_burst, changed.journal) == (0, 100.0, 0, 0)
    assert others.settings() == queue.settings() == changed
    assert changed.max_dead == BOUNDS["max_dead"]


@pytest.mark.once
def test_a_client_with_the_same_settings_is_not_warned(
    world: World, open_queue: OpenQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue = opened(open_queue, **BOUNDS)
    again = world.client().queue(queue.name, partitions=PARTITIONS, streams=8, streams_per_shard=2, **BOUNDS)
    again.write("x", shard_key="a")
    assert "requested here" not in caplog.text
    other = world.client().queue(queue.name, partitions=PARTITIONS, streams=8, streams_per_shard=2, max_len=4)
    other.write("x", shard_key="a")
    assert "max_len=10, not the 4 requested" in caplog.text


def test_no_more_is_written_than_the_queue_may_hold(open_queue: OpenQueue) -> None:
    queue = opened(open_queue, max_len=50)
    assert PARTITIONS <= filled(queue, 50) <= 50
    queue.configure(max_len=20)
    queue.purge()
    assert PARTITIONS <= filled(queue, 50) <= 20


def test_no_more_is_in_flight_than_the_queue_may_have(open_queue: OpenQueue) -> None:
    queue = opened(open_queue, total_in_flight=4)
    for tenant in TENANTS.values():
        queue.write_many([("x", tenant)] * 5)
    held = queue.read_many(100)
    assert len(held) == queue.stats().in_flight == 4
    queue.configure(total_in_flight=3)
    queue.ack_many(held)
    assert len(queue.read_many(100)) == 3


def test_no_more_is_delivered_at_once_than_the_rate_allows(open_queue: OpenQueue) -> None:
    queue = opened(open_queue, total_rate=0.01, total_burst=4)
    for tenant in TENANTS.values():
        queue.write_many([("x", tenant)] * 5)
    assert len(queue.read_many(100)) + len(queue.read_many(100)) == 4


def test_what_is_full_says_so_of_the_queue(open_queue: OpenQueue) -> None:
    queue = opened(open_queue, max_len=PARTITIONS)
    queue.write("x", shard_key=TENANTS[1])
    with pytest.raises(QueueFull) as caught:
        queue.write("x", shard_key=TENANTS[1])
    assert f"queue {queue.name!r} may hold max_len = 1 messages in partition 1, its part" in str(caught.value)
    assert (caught.value.bound, caught.value.limit) == ("max_len", 1)


@pytest.mark.once
@pytest.mark.parametrize(
    "setting",
    [
        {"key_scope": "queue"},
        {"max_len": 2},
        {"total_in_flight": 1},
        {"total_rate": 1.0},
        {"journal": 1},
        {"ttl": 60.0},
    ],
    ids=str,
)
def test_what_cannot_be_shared_out_is_refused_and_nothing_is_changed(
    world: World, open_queue: OpenQueue, setting: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        opened(open_queue, **setting)
    assert open_queue(create=False).name not in world.client().queues()
    queue = open_queue(partitions=PARTITIONS)
    before = queue.declare()
    with pytest.raises(ConfigError, match=next(iter(setting))):
        queue.configure(**setting)
    assert queue.settings() == before


@pytest.mark.once
def test_a_legacy_stream_is_drained_by_the_head(world: World, open_queue: OpenQueue) -> None:
    if "cluster" in world.url:
        pytest.skip("the stream must lie in the slot of the queue")
    queue = opened(open_queue)
    world.raw.xgroup_create(f"{queue.name}-old", "old", "0", mkstream=True)
    world.raw.xadd(f"{queue.name}-old", {"body": "1"})
    queue.configure(legacy_stream=f"{queue.name}-old", legacy_group="old")
    assert queue.settings().legacy_stream == f"{queue.name}-old"
    assert queue.stats().legacy == 1
    assert "@" not in queue.read(block=30.0).message_id
