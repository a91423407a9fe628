"""One of eight deliveries is for those who wait for a turn beside new shard keys without end, over all partitions.

A client counts it over the partitions, so it is exact to a message or two. Each job costs the same, by its word.
"""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest

from shardq import Client, Delivery
from shardq.client import Queue
from shardq.partitions.homes import home
from tests.promises.conftest import OpenClient

DELIVERIES = 240
"""How many are looked at: a multiple of eight and of each batch."""

pytestmark = pytest.mark.runs_in("test-all")

JOB = 0.01
"""Seconds that each job costs."""


@pytest.fixture(params=[3, 8])
def parted(request: pytest.FixtureRequest, client: Client, queue_name: str, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue with partitions. None is late: a busy machine would leave the one with the flood alone in a read."""
    for place in ("shardq.partitions.reads", "shardq.client.async_stands", "shardq.client.sync_stands"):
        monkeypatch.setattr(f"{place}.PATIENCE", 60.0)
    queue = client.queue(queue_name, create=True, partitions=request.param)
    queue.declare()
    return queue


@pytest.mark.once
@pytest.mark.parametrize("batch", [1, 3, 120])
def test_a_flood_in_one_partition_has_one_delivery_of_eight_of_all(parted: Queue, batch: int) -> None:
    got = beside_new_ones([parted], ["flood"], batch)
    assert got["flood"] in about(DELIVERIES // 8, 1)


@pytest.mark.once
@pytest.mark.parametrize("batch", [1, 3, 120])
def test_floods_in_each_partition_share_one_delivery_of_eight(parted: Queue, batch: int) -> None:
    floods = at_home_in_each(parted)
    got = beside_new_ones([parted], floods, batch)
    assert sum(got.values()) in about(DELIVERIES // 8, len(floods))
    # Each flood's share, to a message.
    assert max(got.values()) - min(got[tenant] for tenant in floods) <= 2


@pytest.mark.once
def test_each_client_gives_one_of_eight_of_its_own(parted: Queue, queue_name: str, open_client: OpenClient) -> None:
    readers = [parted, *(open_client().queue(queue_name) for _ in range(2))]
    got = beside_new_ones(readers, ["flood"], 1)
    spread = len(readers) + 1
    assert DELIVERIES // 8 - spread <= got["flood"] <= DELIVERIES // 8 + spread


def about(deliveries: int, partitions: int) -> range:
    """Where in eight a client begins is drawn, and each partition where some wait may owe or be owed part of one."""
    spread = 1 + partitions
    return range(deliveries - spread, deliveries + spread + 1)


def at_home_in_each(queue: Queue) -> list[str]:
    """A tenant of each partition."""
    partitions = len(queue.partitions())
    homes: dict[int, str] = {}
    for number in count():
        homes.setdefault(home(f"flood-{number}".encode(), partitions), f"flood-{number}")
        if len(homes) == partitions:
            return [*homes.values()]
    raise AssertionError


def done(queue: Queue, found: list[Delivery]) -> None:
    """Ack these jobs, each for what it costs."""
    for each in found:
        each.cost = JOB
    assert queue.ack_many(found) == []


def beside_new_ones(readers: list[Queue], floods: list[str], batch: int) -> Counter[str]:
    """How many deliveries of each flood there are, if there is a message of a new shard key for each that is taken.

    What is in the streams is read before: from then on each flood waits for its turn.
    """
    queue, got = readers[0], Counter[str]()
    for tenant in floods:
        queue.write_many([("flood", tenant)] * (DELIVERIES // 8 + 64))
    while sum(queue.stats().streams):
        done(queue, queue.read_many(min(1000, sum(queue.stats().streams))))
    queue.write_many([("new", f"first-{number}") for number in range(8 * batch + 200)])
    for reader in readers:  # a client may look at few partitions a second: its first large reads find out what is where
        for _ in range(3):
            done(reader, reader.read_many(batch))
    for number in range(DELIVERIES // batch):
        queue.write_many([("new", f"new-{number}-{at}") for at in range(batch)])
        reader = readers[number % len(readers)]
        found = reader.read_many(batch)
        assert len(found) == batch
        done(reader, found)
        got.update(str(each.shard_key) for each in found if str(each.shard_key) in floods)
    return got
