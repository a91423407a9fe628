"""Somebody deletes entries by hand, behind the queue's back: it goes on, and its numbers come right again."""

from __future__ import annotations

import pytest
import redis

from shardq import Client, Empty
from tests.fault.conftest import Open
from tests.servers import Server
from tests.waiting import eventually


@pytest.mark.parametrize(("streams", "smaller"), [(6, 1), (24, 3)])
def test_a_stream_that_was_emptied_by_hand_and_shrunk_away_stops_no_reader(
    server: Server, open_client: Open, queue_name: str, streams: int, smaller: int
) -> None:
    """Its message was in flight: the lease ends, and names a stream that no reader knows."""
    client: Client = open_client(server.url)
    queue = client.queue(queue_name, streams=streams, streams_per_shard=1)
    queue.write_many([("lost", f"tenant-{n}") for n in range(4 * streams)])
    held = {delivery.received.stream for delivery in queue.read_many(4 * streams, visibility_timeout=0.1)}
    plain = redis.Redis.from_url(server.url)
    for stream in held:
        plain.xtrim(queue.state.keys.stream(stream or 0), maxlen=0)
    assert queue.resize(smaller)[0] == smaller
    plain.close()
    eventually(lambda: queue.stats().in_flight == 0)
    with pytest.raises(Empty):
        queue.read(block=0.3)
    queue.write("next", shard_key="t")
    assert queue.read().payload == "next"
    stats = queue.stats()
    assert (stats.backlog, stats.in_flight, stats.vanished) == (0, 1, 4 * streams)
