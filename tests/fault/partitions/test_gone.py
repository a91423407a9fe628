"""A partition that is gone: the others are read on, and nobody is told that the queue is empty."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import Client, QueueMissing
from shardq.model.partitions import map_of
from shardq.partitions.homes import home
from shardq.partitions.map import PartitionMap
from tests.servers import Server

PARTITIONS = 3
TENANTS = {home(f"tenant-{number}", PARTITIONS): f"tenant-{number}" for number in range(20)}


def test_a_partition_that_is_gone_leaves_the_others_what_they_have(server: Server, queue_name: str) -> None:
    with Client.from_url(server.url) as client:
        queue = client.queue(queue_name, partitions=PARTITIONS, streams=4, streams_per_shard=2)
        found = PartitionMap.parse(map_of(queue.declare().partitions))
        keys: Any = server.client().keys(f"shardq:{{{found.name_of(queue_name, 1)}}}:*")
        assert server.run("DEL", *keys) == len(keys) > 0
        queue.write_many([(n, TENANTS[number]) for n in range(5) for number in (0, 2)])
        assert sorted(each.payload for _ in range(10) for each in queue.read_many(1)) == sorted([*range(5)] * 2)
        with pytest.raises(QueueMissing):
            queue.read()
        with pytest.raises(QueueMissing):
            queue.write("x", shard_key=TENANTS[1])
        assert not server.client().keys(f"shardq:{{{found.name_of(queue_name, 1)}}}:*")  # it is made by no late writer
