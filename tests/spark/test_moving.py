"""A table is read while its messages move: none is missed that is in the queue all the time, and none shown twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from shardq import Client, Delivery, Message
from shardq.client import Queue
from shardq.spark import sweep
from shardq.spark.connection import client_of
from shardq.spark.ops import sweep as sweep_ops
from shardq.spark.options import Reading, parsed
from shardq.spark.reader import BatchReader
from shardq.spark.schema import arrow_schema, table_schema
from tests.servers import Server

pytestmark = pytest.mark.runs_in("test-all")


class Moving:
    """A client that lets something happen before each call."""

    def __init__(self, client: Client, happens: Callable[[], None]) -> None:
        self._client, self._happens = client, happens

    def run(self, op: Any) -> Any:
        self._happens()
        return self._client.run(op)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class Workers:
    """Who moves messages. Those of the shard key "go" are acked, all others given back, now or after a while."""

    def __init__(self, queue: Queue, rng: random.Random) -> None:
        self.queue, self.rng = queue, rng
        self.held: list[Delivery] = []
        self.stay: set[str] = set()

    def write(self, count: int) -> None:
        keys = [self.rng.choice(("a/stay", "a/too", "b/stay", "go", f"{self.rng.random()}/stay")) for _ in range(count)]
        delays = [self.rng.choice((None, None, None, 0.001, 3600)) for _ in keys]
        names = [self.rng.choice((None, None, None, f"u{self.rng.random()}")) for _ in keys]
        columns = zip(keys, delays, names, strict=True)
        ids = self.queue.write_many([Message(b"x", key, delay=delay, unique_key=name) for key, delay, name in columns])
        self.stay |= {each for each, key in zip(ids, keys, strict=True) if key != "go"}

    def move(self) -> None:
        for _ in range(self.rng.randrange(3)):
            self.held += self.queue.read_many(self.rng.randrange(1, 9))
        self.rng.shuffle(self.held)
        for _ in range(min(len(self.held), self.rng.randrange(3))):
            self._end(self.held.pop())

    def _end(self, delivery: Delivery) -> None:
        if delivery.shard_key == "go":
            delivery.ack()
        else:
            delivery.nack(delay=self.rng.choice((0, 0.001, 3600)), error=self.rng.choice(("", "again")))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("parents", [0, 1])
@pytest.mark.parametrize("by_key", [False, True])
def test_what_moves_is_read_once(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch, seed: int, parents: int, by_key: bool
) -> None:
    monkeypatch.setattr(sweep, "MESSAGES_OF_TASK", 80)  # and small pages, so that much happens between two of them
    monkeypatch.setattr(sweep, "BLOCK_BYTES", 600)
    monkeypatch.setattr(sweep, "MAX_WHOLE_BLOCKS", 2)
    for name, value in {"MAX_AGAIN": 0, "MAX_ASKED": 3, "BLOCK_DISTANCE": 1}.items():
        monkeypatch.setattr(sweep, name, value)
    for name, value in {
        "STATES_A_CALL": 7,
        "MAX_WHOLE_BLOCKS": 2,
        "_PROBES": 3,
        "_SCANNED": 10,
        "_SAMPLED": 20,
    }.items():
        monkeypatch.setattr(sweep_ops, name, value)
    monkeypatch.setattr(sweep, "_is_in_blocks", lambda *_: by_key)
    rng = random.Random(seed)
    with Client.from_url(server.url) as client:
        window = rng.choice((1, 3) if parents or by_key else (0, 1, 3))
        queue = client.queue(
            queue_name, streams=3, streams_per_shard=2, window=window, parents=parents, max_deliveries=1000
        )
        workers = Workers(queue, rng)
        for _ in range(4):
            workers.write(40)
            workers.move()
        before = set(workers.stay)

        def happens() -> None:
            workers.move()
            if rng.random() < 0.2:
                workers.write(5)

        monkeypatch.setattr(f"{BatchReader.__module__}.client_of", lambda options: Moving(client_of(options), happens))
        given = {"url": server.url, "subscribe": queue.name, "partitions": "4", "fetchSize": "5"}
        table = BatchReader(parsed(Reading, given), arrow_schema(table_schema("live")))
        parts = table.partitions()
        rows = [row for part in parts for batch in table.read(part) for row in batch.to_pylist()]
    found = Counter(row["message_id"] for row in rows)
    assert found.keys() >= before
    assert max(found.values()) == 1
    assert len(parts) > 1
    assert {part.share is not None for part in parts} == {by_key}
