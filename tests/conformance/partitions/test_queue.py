"""A queue with partitions is used as any other: on one server, and with each partition on a node of its own."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardq import ConfigError, Empty, Message, PartlyWritten, Queue, UniqueConflict
from shardq.model.partitions import map_of
from shardq.partitions.homes import home
from shardq.partitions.map import PartitionMap
from shardq.protocol.ids import split
from shardq.protocol.keys import slot
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.servers import Cluster
from tests.surface import LOCAL, methods

PARTITIONS = 3
TENANTS = [f"tenant-{number}" for number in range(20)]
SOON = 30.0


def opened(open_queue: OpenQueue, **settings: Any) -> Queue:
    """The test's queue, with as many partitions as the cluster of the tests has nodes."""
    queue = open_queue(partitions=PARTITIONS, streams=8, streams_per_shard=2, **settings)
    queue.declare()
    return queue


def drained(queue: Queue, count: int = 10) -> list[Any]:
    """All deliveries that the queue has, acked, in the order in which they came."""
    found: list[Any] = []
    while some := queue.read_many(count):
        found += some
        assert queue.ack_many(some) == []
    return found


def homes() -> dict[int, str]:
    """A tenant of each partition."""
    return {home(tenant, PARTITIONS): tenant for tenant in TENANTS}


@pytest.mark.parametrize("count", [1, 7, 100])
def test_each_message_is_delivered_once_from_the_home_of_its_shard_key(open_queue: OpenQueue, count: int) -> None:
    queue = opened(open_queue)
    ids = queue.write_many([(number, TENANTS[number % 20]) for number in range(100)])
    assert [split(each)[1] for each in ids] == [home(TENANTS[number % 20], PARTITIONS) for number in range(100)]
    ids.append(queue.write("one", shard_key="a"))
    assert queue.len() == 101
    found = drained(queue, count)
    assert Counter(each.message_id for each in found) == Counter(ids)
    assert (queue.len(), queue.stats().acked) == (0, 101)


def test_on_a_cluster_each_partition_is_on_a_node_of_its_own(
    clustered: None, whole_cluster: Cluster, open_queue: OpenQueue
) -> None:
    queue = opened(open_queue)
    found = PartitionMap.parse(map_of(queue.settings().partitions))
    names = [found.name_of(queue.name, number) for number in range(PARTITIONS)]
    nodes = [whole_cluster.owner(slot(f"{{{name}}}")) for name in names]
    assert len(set(nodes)) == PARTITIONS


def test_a_shard_key_is_served_in_the_order_of_its_writes(open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    for number in range(30):
        queue.write(number, shard_key=TENANTS[number % 3])
    served: dict[Any, list[int]] = {}
    for each in drained(queue, 4):
        served.setdefault(each.shard_key, []).append(each.payload)
    assert served == {TENANTS[first]: [*range(first, 30, 3)] for first in range(3)}


def test_a_queue_that_is_empty_says_so_at_once_and_one_that_is_not_never(open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    for tenant in [*homes().values()] * 4:
        with pytest.raises(Empty):
            queue.read()
        assert queue.read_many(5) == []
        queue.write("x", shard_key=tenant)
        queue.read().ack()


@pytest.mark.parametrize("number", range(PARTITIONS))
def test_a_blocked_reader_gets_what_comes_to_any_partition(
    real: None, world: World, open_queue: OpenQueue, number: int
) -> None:
    queue = opened(open_queue)
    writer = opened(lambda **settings: open_queue(by=world.client(), **settings))
    with ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(queue.read, block=SOON) for _ in range(4)]
        writer.write_many([(n, homes()[number]) for n in range(4)])
        found = [each.result(SOON) for each in reads]
    assert sorted(each.payload for each in found) == [0, 1, 2, 3]
    queue.ack_many(found)
    assert queue.len() == 0


def test_what_was_given_back_and_what_came_due_is_found(open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    queue.write_many([(tenant, tenant) for tenant in homes().values()])
    first = queue.read_many(10)
    assert len(first) == PARTITIONS
    assert queue.nack_many(first, delay=[0.0] * PARTITIONS, error=["no"] * PARTITIONS) == []
    again = queue.read_many(10)
    assert sorted(each.message_id for each in again) == sorted(each.message_id for each in first)
    assert {(each.count, each.last_error) for each in again} == {(2, "no")}
    queue.reject_many(again, "bad")
    assert sorted(each.message_id for each in queue.dead()) == sorted(each.message_id for each in first)
    assert queue.stats().dead == PARTITIONS


def test_a_read_acks_deliveries_of_any_partition(open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    queue.write_many([(number, TENANTS[number % 20]) for number in range(40)])
    held: list[Any] = []
    seen = 0
    while True:
        held = queue.read_many(6, ack=held)
        seen += len(held)
        if not held:
            break
    assert (seen, queue.len()) == (40, 0)


def test_a_message_is_found_by_its_id_wherever_it_is(open_queue: OpenQueue) -> None:
    queue = opened(open_queue, result_ttl=60)
    for tenant in homes().values():
        message_id = queue.write("x", shard_key=tenant)
        assert queue.status(message_id).state == "waiting"
        delivery = queue.read()
        assert delivery.message_id == message_id
        assert queue.status(message_id).state == "in_flight"
        delivery.ack(result={"of": tenant})
        assert queue.result(message_id) == {"of": tenant}
        later = queue.write("y", shard_key=tenant, delay=60)
        assert split(later)[1] == home(tenant, PARTITIONS)
        assert queue.cancel(later) == "removed"
    with pytest.raises(ConfigError, match="no partition 9"):
        queue.status("1-1-0@9")


def test_equal_keys_of_a_shard_key_meet_in_its_home(open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    for tenant in homes().values():
        first = queue.write("x", shard_key=tenant, dedup_key="same")
        again = queue.write("x", shard_key=tenant, dedup_key="same")
        assert (again, first.is_new, again.is_new) == (first, True, False)
        (many,) = queue.write_many([Message("x", tenant, dedup_key="same")])
        assert (many, many.is_new) == (first, False)
    assert queue.len() == PARTITIONS


def test_equal_unique_keys_of_a_shard_key_meet_in_its_home(open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    for tenant in homes().values():
        first = queue.write("x", shard_key=tenant, unique_key="same")
        assert queue.write("y", shard_key=tenant, unique_key="same") == first
        with pytest.raises(UniqueConflict) as conflict:
            queue.write("z", shard_key=tenant, unique_key="same", on_conflict="raise")
        assert conflict.value.message_id == first
        with pytest.raises(PartlyWritten) as partly:
            queue.write_many([Message("z", tenant, unique_key="same", on_conflict="raise"), ("other", tenant)])
        refused = partly.value.results[0]
        assert isinstance(refused, UniqueConflict)
        assert refused.message_id == first
    assert queue.len() == 2 * PARTITIONS


def test_a_pause_limits_and_weights_count_in_all_partitions(open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    queue.pause()
    queue.write_many([(n, tenant) for tenant in homes().values() for n in range(3)])
    assert queue.read_many(10) == []
    assert None in queue.paused()
    queue.resume()
    queue.pause(homes()[1])
    assert {home(each.shard_key, PARTITIONS) for each in drained(queue)} == {0, 2}
    queue.resume(homes()[1])
    assert queue.set_weights({homes()[2]: 3}) == queue.weights() == {homes()[2]: 3}
    assert queue.purge() == 3
    assert queue.len() == 0


def test_writers_and_topics_find_the_homes_too(open_queue: OpenQueue) -> None:
    """Whatever a client writes to the queue by its name."""
    queue = opened(open_queue)
    client = queue.client
    client.bind("news", queue)
    ids = [client.publish("news", tenant, shard_key=tenant)[queue.name] for tenant in TENANTS]
    assert [split(each)[1] for each in ids] == [home(tenant, PARTITIONS) for tenant in TENANTS]
    assert sorted(each.message_id for each in drained(queue)) == sorted(ids)


def test_a_client_that_was_told_nothing_learns_the_map(world: World, open_queue: OpenQueue) -> None:
    """Its first call may go to the head, which is read. Then it does as all others."""
    queue = opened(open_queue)
    other = world.client().queue(queue.name)
    first = other.write("first", shard_key=homes()[2])
    ids = [other.write(tenant, shard_key=tenant) for tenant in TENANTS]
    assert [split(each)[1] for each in ids] == [home(tenant, PARTITIONS) for tenant in TENANTS]
    assert other.len() == queue.len() == len(TENANTS) + 1
    half = other.read_many(len(TENANTS) // 2)
    assert other.ack_many(half) == []
    rest = drained(queue)
    assert Counter(each.message_id for each in [*half, *rest]) == Counter([first, *ids])


def test_a_client_that_was_told_of_other_settings_learns_the_map(world: World, open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    queue.write_many([(tenant, tenant) for tenant in TENANTS])
    other = world.client().queue(queue.name, streams=8, streams_per_shard=2)
    assert other.settings().partitions == PARTITIONS
    assert len(drained(other)) == len(TENANTS)
    assert queue.len() == 0


def test_the_map_counts_and_not_what_a_client_was_told(world: World, open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    queue.write_many([(tenant, tenant) for tenant in TENANTS])
    other = world.client().queue(queue.name, partitions=2, streams=8, streams_per_shard=2)
    assert other.declare().partitions == PARTITIONS
    assert len(drained(other)) == len(TENANTS)


def test_the_list_of_queues_names_the_queue_alone(open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    assert queue.client.queues() == [queue.name]
    with pytest.raises(ConfigError, match="may not hold '#'"):
        queue.client.queue(f"{queue.name}#1.0")


def test_a_queue_is_deleted_with_its_partitions(world: World, open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    queue.write_many([(tenant, tenant) for tenant in TENANTS])
    with pytest.raises(ConfigError, match="or whatever it holds"):
        queue.delete(expected=20)
    assert queue.delete(expected=None) == len(TENANTS)
    assert not world.raw.keys("*") if "cluster" not in world.url else True
    queue.declare()
    assert queue.len() == 0


@pytest.mark.once
def test_each_method_goes_over_the_partitions() -> None:
    """None of them is that of a queue without partitions, which would speak of the head alone."""
    from shardq.client.partitions import PartitionedQueue

    local = {name.partition(".")[2] for name in LOCAL if name.startswith("Queue.")}
    by_others = {"read", "read_many", "retry_now"}  # which are made of `_read` and `_begin`
    own = {name for name in vars(PartitionedQueue) if not name.startswith("_")}
    assert methods(Queue) - own == (local | by_others) - {"job"}


@pytest.mark.once
def test_a_queue_without_partitions_has_none_of_the_layer(queue: Queue) -> None:
    queue.write("x", shard_key="a")
    assert type(queue) is Queue
    assert (queue.state.parts, queue.state.number) == (None, 0)
    assert "partitions" not in queue.state.config.settings()


@pytest.mark.once
def test_a_quiet_tenant_waits_for_no_flood_of_another_partition(open_queue: OpenQueue) -> None:
    """20 floods, a quiet tenant in each partition: in single reads it is served within a round of them."""
    queue = opened(open_queue)
    floods = [f"flood-{number}" for number in range(20)]
    queue.write_many([(number, flood) for number in range(50) for flood in floods])
    for _ in range(100):
        queue.read().ack()
    for tenant in homes().values():
        queue.write("quiet", shard_key=tenant)
        waited = 0
        while (delivery := queue.read()).payload != "quiet":
            delivery.ack()
            waited += 1
        delivery.ack()
        assert waited <= 2 * len(floods)
