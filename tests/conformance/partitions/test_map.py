"""A client follows the map of a queue: it reads what was added, lets go of what left, deals again what found none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardq import ConfigError, Empty, LeaseLost, Message, Queue, QueueMissing
from shardq.ops.operate import queues, weights
from shardq.ops.write.outgoing import compose
from shardq.partitions.asking import MAX_AGE
from shardq.partitions.homes import home
from shardq.protocol.ids import split
from shardq.testing import ManualClock
from tests.conformance.conftest import OpenQueue
from tests.conformance.partitions.maps import calls_of, change_map, delete_last
from tests.conformance.world import World, drained
from tests.waiting import eventually

PARTITIONS = 3
SOON = 30.0
TENANTS = [f"tenant-{number}" for number in range(40)]


def homes(partitions: int) -> dict[int, str]:
    """A tenant of each partition of so many."""
    return {home(tenant, partitions): tenant for tenant in TENANTS}


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A queue with partitions."""
    queue = open_queue(partitions=PARTITIONS, streams=4, streams_per_shard=2)
    queue.declare()
    return queue


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the other client."""
    return ManualClock(runs=True)


@pytest.fixture
def other(world: World, queue: Queue, clock: ManualClock) -> Queue:
    """The same queue of another client, which knows the map as it is at first."""
    other = world.client(clock=clock).queue(queue.name)
    assert other.read_many(PARTITIONS) == []
    return other


def grown_old(queue: Any, clock: ManualClock, partitions: int) -> None:
    """The map that the client has is old; the next call has it asked for, and waits for nothing."""
    clock.advance(MAX_AGE)
    queue.len()
    eventually(lambda: len(queue.state.parts.states) == partitions)


def test_a_map_is_believed_for_five_seconds(world: World, queue: Queue, other: Queue) -> None:
    """Unless a call of the head tells that the queue was changed."""
    tenants = [tenant for tenant in TENANTS if home(tenant, PARTITIONS)]
    change_map(world, queue, written=4, read=4)
    assert {split(other.write(tenant, shard_key=tenant))[1] for tenant in tenants} == {1, 2}


def test_partitions_that_were_added_are_written_to_and_read(
    world: World, queue: Queue, other: Queue, clock: ManualClock
) -> None:
    change_map(world, queue, written=4, read=4)
    writer = world.client().queue(queue.name)
    ids = [writer.write(tenant, shard_key=tenant) for tenant in TENANTS]
    assert {split(each)[1] for each in ids} == {0, 1, 2, 3}
    grown_old(other, clock, 4)
    assert other.len() == len(TENANTS)
    ids += other.write_many([(tenant, tenant) for tenant in TENANTS])
    assert [split(each)[1] for each in ids] == [home(tenant, 4) for tenant in TENANTS] * 2
    found = drained(other)
    assert sorted(each.message_id for each in found) == sorted(ids)
    assert other.ack_many(found) == []
    assert writer.len() == 0


def test_what_is_known_of_partitions_that_stay_is_kept(
    world: World, queue: Queue, other: Queue, clock: ManualClock
) -> None:
    queue.write_many([(tenant, tenant) for tenant in homes(PARTITIONS).values()])
    held = other.read_many(PARTITIONS)
    assert len(held) == PARTITIONS
    states, known = other.state.parts.states, other.state.parts.turns._turns
    change_map(world, queue, written=5, read=5)
    grown_old(other, clock, 5)
    assert other.state.parts.states[:PARTITIONS] == states
    assert other.state.parts.turns._turns[:PARTITIONS] == known
    held[0].ack()
    assert other.ack_many(held[1:]) == []
    assert queue.len() == 0


def test_a_client_that_is_idle_asks_nothing(world: World, queue: Queue, other: Queue, clock: ManualClock) -> None:
    change_map(world, queue, written=4, read=4)
    before = calls_of(world)
    clock.advance(100)
    assert calls_of(world) == before
    assert len(other.state.parts.states) == PARTITIONS


def test_a_delivery_of_a_partition_that_left_is_settled(
    world: World, queue: Queue, other: Queue, clock: ManualClock
) -> None:
    """The map may lose a partition that still has messages only by mistake: what is held of it is settled there."""
    queue.write_many([(number, homes(PARTITIONS)[2]) for number in range(4)])
    held: list[Any] = other.read_many(4)
    assert [each.partition for each in held] == [2] * 4
    change_map(world, queue, written=2, read=2)
    grown_old(other, clock, 2)
    assert other.ack_many(held[:2]) == []
    held[2].ack()
    with pytest.raises(Empty):
        other.read(ack=held[3])
    assert world.client().run(_length(world, other)) == 0


def test_who_holds_a_delivery_of_a_partition_that_was_deleted_hears_it(
    world: World, queue: Queue, other: Queue, clock: ManualClock
) -> None:
    queue.write("x", shard_key=homes(PARTITIONS)[2])
    held = other.read()
    change_map(world, queue, written=2, read=3)
    queue.purge(shard_key=homes(PARTITIONS)[2], in_flight=True)
    delete_last(world, queue, expected=None)
    with pytest.raises(LeaseLost):
        held.ack()


def test_a_write_that_finds_its_partition_gone_is_dealt_again(world: World, queue: Queue, other: Queue) -> None:
    tenant = homes(PARTITIONS)[2]
    assert split(other.write("first", shard_key=tenant))[1] == 2
    queue.ack_many(drained(queue))
    change_map(world, queue, written=2, read=3)
    delete_last(world, queue)
    ids = [other.write("x", shard_key=tenant, dedup_key="d")]
    assert other.write("x", shard_key=tenant, dedup_key="d") == ids[0]
    assert len(other.state.parts.states) == 2
    ids += other.write_many([("y", tenant), Message("z", tenant)])
    assert {split(each)[1] for each in ids} == {home(tenant, 2)}
    assert sorted(each.message_id for each in drained(queue)) == sorted(ids)


def test_many_writes_that_find_a_partition_gone_are_dealt_again(world: World, queue: Queue, other: Queue) -> None:
    change_map(world, queue, written=2, read=3)
    delete_last(world, queue)
    ids = other.write_many([(tenant, tenant) for tenant in TENANTS])
    assert [split(each)[1] for each in ids] == [
        home(tenant, 2) if home(tenant, 3) == 2 else home(tenant, 3) for tenant in TENANTS
    ]
    assert sorted(each.message_id for each in drained(world.client().queue(queue.name))) == sorted(ids)


def test_reads_and_sums_leave_out_a_partition_that_is_gone(world: World, queue: Queue, other: Queue) -> None:
    change_map(world, queue, written=2, read=3)
    delete_last(world, queue)
    with pytest.raises(Empty):
        other.read()
    again = world.client().queue(queue.name)
    again.write("x", shard_key=homes(2)[1])
    assert other.len() == 1
    assert other.stats().backlog == 1
    assert other.read(block=SOON).payload == "x"


def test_a_queue_that_was_deleted_is_missed(world: World, queue: Queue, other: Queue) -> None:
    queue.delete()
    for call in (
        lambda: other.write("x", shard_key=homes(PARTITIONS)[2]),
        lambda: other.write_many([("x", homes(PARTITIONS)[1])]),
        other.read,
        other.len,
    ):
        with pytest.raises(QueueMissing, match=f"'{queue.name}'"):
            call()


@pytest.mark.runs_in("test-all")
def test_a_blocked_reader_hears_of_a_partition_that_was_added(real: None, world: World, queue: Queue) -> None:
    reader = world.client().queue(queue.name)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(reader.read, block=SOON)
        eventually(lambda: world.blocked(queue) >= 1)
        change_map(world, queue, written=4, read=4)
        world.client().queue(queue.name).write("x", shard_key=homes(4)[3])
        delivery: Any = read.result(MAX_AGE + 1.0)
    assert (delivery.payload, delivery.partition) == ("x", 3)
    delivery.ack()


def _length(world: World, queue: Any) -> Any:
    from shardq.ops.inspect.stats import length

    return length(queue.state.parts.left[2])


@pytest.mark.parametrize("text", ["3:a,b:later@1", "9:", "3:a,b:4@99999999999999999"])
def test_nobody_takes_the_head_for_all_of_a_queue_whose_map_is_not_understood(
    world: World, queue: Queue, text: str
) -> None:
    """Such as one of a later version: each call says so, not only the first."""
    world.node(queue.state.keys.meta).hset(queue.state.keys.meta, "partitions", text)
    other = world.client().queue(queue.name)
    for _ in range(2):
        for call in (other.len, other.read, other.stats, lambda: other.write("a", shard_key="a")):
            with pytest.raises(ConfigError, match="map"):
                call()


def test_what_is_changed_is_changed_in_partitions_that_were_just_added(
    world: World, queue: Queue, other: Queue
) -> None:
    """Though the map that the client has is new enough for writes, and it reckons a bound's parts by the new one."""
    change_map(world, queue, written=4, read=4)
    other.set_weights({"a": 3})
    other.configure(max_len=40)
    layer: Any = other
    assert len(layer.state.parts.states) == 4
    for state in layer.state.parts.states:
        assert other.client.run(weights.weights(state)) == {"a": 3}
        assert other.client.run(queues.settings(state)).max_len == (40 if state.number == 0 else 10)


def test_a_write_that_is_under_way_while_its_client_deletes_the_queue_hears_that(world: World, queue: Queue) -> None:
    """Whether there is none then, or one without partitions."""
    layer: Any = queue
    parts, tenant = layer.state.parts, homes(PARTITIONS)[2]
    message = compose(layer.state, layer.client.codecs, "x", tenant)
    queue.delete(expected=0)
    (gone,) = layer.client.run(parts.store([message], None))
    assert isinstance(gone, QueueMissing)
    world.client().queue(queue.name, create=True).write("plain", shard_key=tenant)
    (gone,) = layer.client.run(parts.store([message], None))
    assert isinstance(gone, QueueMissing)
