"""A former home that is full keeps nobody from writing to a new one: more partitions are added for that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shardq import Client, OutOfMemory, Queue
from shardq.partitions import resize
from shardq.partitions.homes import home
from tests.servers import Cluster, Server

BEFORE, AFTER = 3, 6


@contextmanager
def full(node: Server) -> Iterator[None]:
    """The node takes nothing that needs memory."""
    node.run("CONFIG", "SET", "maxmemory", 1)
    yield
    node.run("CONFIG", "SET", "maxmemory", 0)


def node_of(cluster: Cluster, queue: Any, number: int) -> Server:
    """The node that has a partition."""
    return cluster.nodes[cluster.owner(cluster.slot_of(queue.state.parts.states[number].keys.meta))]


def moves_to_another_node(cluster: Cluster, queue: Queue) -> str:
    """A tenant whose former home is on one node, and its new one on another."""
    for each in (f"tenant-{number}" for number in range(1000)):
        former, now = home(each, BEFORE), home(each, AFTER)
        if former and node_of(cluster, queue, former) is not node_of(cluster, queue, now):
            return each
    raise AssertionError("no home has moved to another node")


@pytest.mark.parametrize("key", ["dedup_key", "unique_key"])
def test_a_former_home_that_is_full_keeps_no_key_from_its_new_one(
    cluster: Cluster, queue_name: str, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(resize, "PAUSE_SECONDS", 0.0)
    with Client.from_url(cluster.url) as client:
        queue: Any = client.queue(queue_name, partitions=BEFORE, streams=4, streams_per_shard=2)
        queue.declare()
        queue.resize(partitions=AFTER)
        queue.read_many(1)
        tenant = moves_to_another_node(cluster, queue)
        with full(node_of(cluster, queue, home(tenant, BEFORE))):
            first, again = [queue.write("x", shard_key=tenant, timeout=5.0, **{key: "k"}) for _ in range(2)]
            assert (first.is_new, again.is_new, again) == (True, False, first)
        with full(node_of(cluster, queue, home(tenant, AFTER))), pytest.raises(OutOfMemory):
            queue.write("x", shard_key=tenant, timeout=5.0, **{key: "another"})
