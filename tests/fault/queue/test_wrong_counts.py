"""Counts in Redis that are lower than they should be, since somebody has changed them by hand: the queue goes on."""

from __future__ import annotations

import pytest
import redis

from shardq import Client
from tests.conformance.world import drained
from tests.servers import Server
from tests.state import set_line


@pytest.mark.parametrize("takes", ["purge", "read"])
def test_a_count_that_was_too_low_leaves_a_queue_that_can_be_read(server: Server, queue_name: str, takes: str) -> None:
    with Client.from_url(server.url) as client, redis.Redis.from_url(server.url) as raw:
        queue = client.queue(queue_name, streams=4, window=1)
        queue.write_many([(number, "t") for number in range(4)])
        set_line(raw, queue.state.keys, behind=1, turns=0)
        if takes == "purge":
            assert queue.purge() == 4
        else:
            assert len(drained(queue)) == 4
        queue.write("later", shard_key="t")
        assert queue.read().payload == "later"
