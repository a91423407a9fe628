"""Whoever writes to a queue with partitions writes to the home of the shard key, also if it was not told of any."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import Client, Queue, QueueMissing
from shardq.partitions.homes import home
from shardq.protocol.ids import split
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

PARTITIONS = 3
TENANTS = [f"tenant-{number}" for number in range(20)]
HOMES = [home(each, PARTITIONS) for each in TENANTS]


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """The test's queue, with partitions."""
    queue = open_queue(partitions=PARTITIONS, streams=8, streams_per_shard=1)
    queue.declare()
    return queue


@pytest.fixture
def stranger(world: World) -> Client:
    """A client that was told nothing of the queue."""
    return world.client()


def homes_of(ids: Any) -> list[int]:
    return [split(each)[1] for each in ids]


def payloads(queue: Queue) -> list[Any]:
    """The payloads in a queue, which is emptied."""
    found: list[Any] = []
    while some := queue.read_many(100):
        found += [each.payload for each in some]
        queue.ack_many(some)
    return sorted(found)


def test_a_writer_writes_to_the_homes_by_the_name_of_a_queue(queue: Queue, stranger: Client) -> None:
    with stranger.writer() as writer:
        futures = [writer.write(queue.name, n, shard_key=each, dedup_key="d") for n, each in enumerate(TENANTS)]
    assert homes_of(each.result() for each in futures) == HOMES
    with stranger.writer() as writer:
        futures = [writer.write(queue.name, -1, shard_key=each, dedup_key="d") for each in TENANTS]
    assert not any(each.result().is_new for each in futures)
    assert payloads(queue) == [*range(20)]


def test_a_writer_makes_the_queue_with_the_partitions_that_it_was_told(open_queue: OpenQueue, client: Client) -> None:
    queue = open_queue(partitions=PARTITIONS, streams=4)
    with client.writer() as writer:
        futures = [writer.write(queue, n, shard_key=each) for n, each in enumerate(TENANTS)]
    assert homes_of(each.result() for each in futures) == HOMES
    assert payloads(queue) == [*range(20)]


@pytest.mark.parametrize("turn", range(3))
def test_first_messages_of_a_shard_key_are_stored_in_order(queue: Queue, stranger: Client, turn: int) -> None:
    """The first one finds out which partitions there are: the next ones do not get there before it."""
    with stranger.writer() as writer:
        for number in range(400):
            writer.write(queue.name, number, shard_key=TENANTS[number % 4])
    got: dict[Any, list[int]] = {}
    while some := queue.read_many(1000):
        for each in some:
            got.setdefault(each.shard_key, []).append(each.payload)
    assert got == {tenant: [*range(at, 400, 4)] for at, tenant in enumerate(TENANTS[:4])}


@pytest.mark.parametrize("others", [0, 2])
def test_what_is_published_goes_to_the_homes(
    queue: Queue, stranger: Client, world: World, queue_name: str, others: int
) -> None:
    names = [queue.name, *(f"{queue_name}-{number}" for number in range(others))]
    for name in names[1:]:
        world.client().queue(name, streams=2).declare()
    for name in names:
        stranger.bind("news", name)
    told = [stranger.publish("news", n, shard_key=each, dedup_key="d") for n, each in enumerate(TENANTS)]
    assert homes_of(each[queue.name] for each in told) == HOMES
    assert all(len(each) == 1 + others for each in told)
    again = stranger.publish("news", -1, shard_key=TENANTS[3], dedup_key="d")
    assert (again[queue.name], again[queue.name].is_new) == (told[3][queue.name], False)
    assert payloads(queue) == [*range(20)]


def test_what_is_written_to_a_queue_that_is_not_there_yet_goes_to_the_homes_once_it_is(
    open_queue: OpenQueue, stranger: Client
) -> None:
    queue = open_queue(partitions=PARTITIONS, streams=4)
    stranger.bind("news", queue.name)
    assert stranger.publish("news", -1, shard_key="a") == {}
    writer = stranger.writer()
    with pytest.raises(QueueMissing):
        writer.write(queue.name, -1, shard_key="a").result()
    queue.declare()
    ids = [writer.write(queue.name, n, shard_key=each).result() for n, each in enumerate(TENANTS)]
    writer.close()
    ids += [stranger.publish("news", 20 + n, shard_key=each)[queue.name] for n, each in enumerate(TENANTS)]
    assert homes_of(ids) == HOMES * 2
    assert payloads(queue) == [*range(40)]


def test_what_is_published_to_a_queue_that_was_gone_goes_to_the_homes(open_queue: OpenQueue, stranger: Client) -> None:
    queue = open_queue(partitions=PARTITIONS, streams=4)
    stranger.bind("news", queue.name)
    assert stranger.publish("news", -1, shard_key="a") == {}
    queue.declare()
    ids = [stranger.publish("news", n, shard_key=each)[queue.name] for n, each in enumerate(TENANTS)]
    assert homes_of(ids) == HOMES


def test_who_shares_a_call_with_one_that_replaces_is_told_where_its_message_is(queue: Queue, client: Client) -> None:
    """It does not wait for what becomes of that one."""
    tenant = TENANTS[HOMES.index(1)]
    queue.write(-1, shard_key=tenant, unique_key="u")
    with client.writer() as writer:
        futures = []
        for number in range(200):
            unique: dict[str, Any] = {} if number % 7 else {"unique_key": "u", "on_conflict": "replace"}
            futures.append(writer.write(queue, number, shard_key=tenant, **unique))
    assert {*homes_of(each.result() for each in futures)} == {1}
