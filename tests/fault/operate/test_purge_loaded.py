"""The purge of one tenant that floods a queue, beside others, while writers and readers work."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Final

import pytest

from shardq import Client, Message, Queue
from tests.selection import SOAK
from tests.servers import Server
from tests.waiting import eventually

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all", "soak"), pytest.mark.timeout(600)]
FLOOD: Final = 120_000 if SOAK else 12_000
OTHERS: Final = 100_000 if SOAK else 10_000
TENANTS: Final = 1000
SETTINGS: Final = {"streams": 64, "streams_per_shard": 4, "visibility_timeout": 120.0}


class Load:
    """Writers that write for the others and for the flood, and readers that ack; what they wrote and read, in order."""

    def __init__(self, server: Server, name: str, seed: int) -> None:
        self.server, self.name, self.seed = server, name, seed
        self.stopped = threading.Event()
        self.written: dict[str, list[str]] = defaultdict(list)
        self.read: dict[str, list[str]] = defaultdict(list)
        self.lock = threading.Lock()

    def queue(self, client: Client) -> Queue:
        """The queue, by a connection of its own."""
        return client.queue(self.name, **SETTINGS)  # type: ignore[arg-type]

    def write(self, number: int) -> None:
        """Twenty messages a call, one of them of the flood."""
        rng = Random(f"{self.seed} {number}")
        with Client.from_url(self.server.url) as client:
            queue = self.queue(client)
            while not self.stopped.is_set():
                keys = ["flood", *(f"{number}.{rng.randrange(50)}" for _ in range(19))]
                for key, each in zip(keys, queue.write_many([Message(b"x", key) for key in keys]), strict=True):
                    with self.lock:
                        self.written[key].append(str(each))

    def work(self) -> None:
        """Read and ack."""
        with Client.from_url(self.server.url) as client:
            queue = self.queue(client)
            while not self.stopped.is_set():
                held = queue.read_many(20)
                with self.lock:
                    for each in held:
                        self.read[str(each.shard_key)].append(each.message_id)
                queue.ack_many(held)


@pytest.fixture
def queue(server: Server, queue_name: str) -> Iterator[Queue]:
    with Client.from_url(server.url) as client:
        yield client.queue(queue_name, **SETTINGS)  # type: ignore[arg-type]


def number_of(message_id: str) -> int:
    """Its number in the queue."""
    return int(message_id.split("-")[1])


def test_each_message_is_purged_or_delivered_and_all_of_others_are_delivered(
    server: Server, queue: Queue, seed: int
) -> None:
    load = Load(server, queue.name, seed)
    flood = [queue.write(b"later", shard_key="flood", delay=600) for _ in range(50)]
    for at in range(0, FLOOD, 1000):
        flood += queue.write_many([Message(b"x" * (at % 700), "flood")] * 1000)
    for at in range(0, OTHERS, 1000):
        keys = [f"t{(at + each) % TENANTS}" for each in range(1000)]
        for key, each in zip(keys, queue.write_many([Message(b"x", key) for key in keys]), strict=True):
            load.written[key].append(str(each))
    threads = [threading.Thread(target=load.work) for _ in range(2)]
    threads += [threading.Thread(target=load.write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: sum(map(len, load.read.values())) > 200)
        told = queue.purge(shard_key="flood")
        eventually(lambda: sum(map(len, load.written.values())) > OTHERS + 400)
    finally:
        load.stopped.set()
        for thread in threads:
            thread.join()
    while held := queue.read_many(100):
        for delivery in held:
            load.read[str(delivery.shard_key)].append(delivery.message_id)
        queue.ack_many(held)
    # Of the flood each message was delivered or purged, and what came after the purge began was delivered.
    wrote, read = {*map(str, flood), *load.written.pop("flood", [])}, load.read.pop("flood", [])
    assert len(read) == len({*read})
    assert len(wrote) == told.waiting + told.delayed + len(read)
    assert (told.delayed, told.dead, told.cancelled) == (50, 0, 0)
    # All others have theirs.
    assert {key: sorted(ids, key=number_of) for key, ids in load.read.items()} == {
        key: sorted(ids, key=number_of) for key, ids in load.written.items()
    }
    stats = queue.stats()
    assert (stats.backlog, stats.in_flight, stats.delayed, stats.vanished) == (0, 0, 0, 0)
    assert (stats.purged, stats.acked) == (told.total, stats.written - told.total)
    assert queue.tenants(limit=1000) == []
    with closing(server.client()) as plain:
        left = [name for name in plain.hkeys(queue.state.keys.bodies) if b"flood" in name]
        assert left == []
