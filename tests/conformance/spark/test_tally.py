"""What a queue remembers of bulk writes: which there were, and how many rows each has stored in it."""

from __future__ import annotations

import pytest

from shardq import Client
from shardq.client import Queue
from shardq.ops.queue.retry import ask
from shardq.spark.ops import tally
from shardq.spark.ops.bulk import BulkOffset
from shardq.spark.ops.tally import parts_of, stored_by
from tests.conformance.spark.test_bulk import made, store


def test_rows_are_told_by_their_write(server_client: Client, queue_name: str) -> None:
    """Also if they were read since; names that begin alike, or look like patterns, are told apart."""
    queue = made(server_client, queue_name)
    assert server_client.run(parts_of(queue.state)) == []
    wrote = {("w", "0"): 30, ("w", "1"): 5, ("w*", "0"): 7, ("ww", "0"): 11, ("w:x", "a of b:c"): 2}
    for (write_id, part), count in wrote.items():
        store(queue, BulkOffset(write_id, part), 0, count)
    queue.ack_many(queue.read_many(20))
    assert {each: server_client.run(stored_by(queue.state, each)) for each in ("w", "w*", "ww", "w:x", "none")} == {
        "w": 35, "w*": 7, "ww": 11, "w:x": 2, "none": 0,
    }  # fmt: skip
    assert sorted(server_client.run(parts_of(queue.state))) == sorted(f"{write_id}:{part}" for write_id, part in wrote)
    assert server_client.run(stored_by(server_client.queue(f"{queue_name}.none", create=True).state, "w")) == 0


def test_many_offsets_are_read_page_by_page(
    server_client: Client, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where more of them end in one millisecond than are read at a time."""
    monkeypatch.setattr(tally, "FIELDS_A_CALL", 3)
    queue = made(server_client, queue_name)
    for at in range(20):
        store(queue, BulkOffset(f"w-{at % 2}", str(at)), 0, 1)
    _same_end(server_client, queue)
    store(queue, BulkOffset("w-0", "late"), 0, 1)
    assert [server_client.run(stored_by(queue.state, each)) for each in ("w-0", "w-1")] == [11, 10]


def _same_end(client: Client, queue: Queue) -> None:
    key = queue.state.keys.bulk_offsets
    for member in (each for each, _ in client.run(tally._page(queue.state, "-inf", 100)) if each.startswith(b"o:")):
        client.run(ask(queue.state, "ZADD", key, 4_000_000_000_000, member))
