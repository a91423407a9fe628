"""write and write_many: what is stored, where, once, and what is returned."""

from __future__ import annotations

import re
from typing import Any

import pytest

from shardq import Client, Message, PartlyWritten, Queue, QueueFull
from shardq.sharding import shard
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World, drained


@pytest.mark.everywhere
def test_a_message_comes_back_as_it_was_written(queue: Queue) -> None:
    message_id = queue.write({"prompt": "a cat", "n": [1, 2.5, None]}, shard_key="tenant", headers={"a": "1"})
    delivery = queue.read()
    assert delivery.payload == {"prompt": "a cat", "n": [1, 2.5, None]}
    assert (delivery.message_id, delivery.shard_key, delivery.count) == (message_id, "tenant", 1)
    assert dict(delivery.headers) == {"a": "1"}
    assert (delivery.last_error, re.fullmatch(r"\d+-1-\d", message_id) is not None) == ("", True)


@pytest.mark.parametrize(
    "payload", [b"", b"\x00\xff\r\n*3", "text", 0, [], {}, bytes(300_000)], ids=lambda payload: repr(payload)[:20]
)
def test_any_payload_survives(queue: Queue, payload: Any) -> None:
    queue.write(payload, shard_key="t")
    assert queue.read().payload == payload


@pytest.mark.parametrize("key", ["tenant", "ключ", b"\xff\x00", "with space,and|bars:{}"])
def test_any_shard_key_survives(queue: Queue, key: str | bytes) -> None:
    queue.write(1, shard_key=key)
    assert queue.read().shard_key == key


def test_writes_go_to_the_shard_of_their_key_only(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=16, streams_per_shard=2, window=0)
    for key in ("a", "b", "c"):
        for _ in range(4):
            queue.write(key, shard_key=key)
    found = drained(queue)
    used = {key: {each.stream for each in found if each.payload == key} for key in ("a", "b", "c")}
    assert used["a"] == set(shard("a", 16, 2))
    assert used["b"] <= set(shard("b", 16, 2))
    assert used["c"] <= set(shard("c", 16, 2))


@pytest.mark.once
@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("streams", [255, 256, 257, 4096])
def test_a_shard_may_be_all_streams(open_queue: OpenQueue, streams: int) -> None:
    """The first message of a key goes to its best stream, whatever its position takes: one byte, or two."""
    queue = open_queue(streams=streams, streams_per_shard=streams)
    keys = ["alone", "a", "b", "c"]
    ids = [queue.write("alone", shard_key="alone"), *queue.write_many([(key, key) for key in keys[1:]])]
    places = {key: int(message_id.rpartition("-")[2]) for key, message_id in zip(keys, ids, strict=True)}
    assert places == {key: shard(key, streams, streams)[0] for key in keys}
    assert {each.payload: each.stream for each in queue.read_many(9)} == places


def test_each_write_takes_the_shortest_stream_of_its_shard(plain_queue: Queue) -> None:
    for _ in range(4):
        plain_queue.write(1, shard_key="t")
        assert max(plain_queue.stats().streams) == 1
    plain_queue.write_many([(1, "t")] * 6)
    assert sorted(plain_queue.stats().streams) == [2, 2, 3, 3]


def test_so_do_those_of_many_shard_keys(queue: Queue) -> None:
    for number in range(4):
        queue.write(1, shard_key=f"t{number}")
        assert max(queue.stats().streams) == 1
    queue.write_many([(1, f"t{number}") for number in range(4, 10)])
    assert sorted(queue.stats().streams) == [2, 2, 3, 3]


def test_ids_grow_and_are_unique_also_across_streams(queue: Queue) -> None:
    ids = [queue.write(1, shard_key="t"), *queue.write_many([(1, "t")] * 50), queue.write(1, shard_key="t")]
    numbers = [int(each.split("-")[1]) for each in ids]
    assert numbers == list(range(1, 53))
    assert len({each.rpartition("-")[0] for each in ids}) == 52


@pytest.mark.everywhere
def test_a_batch_returns_ids_in_its_order(queue: Queue) -> None:
    ids = queue.write_many([(number, f"tenant-{number % 7}") for number in range(600)])  # more than one chunk
    payloads = {each.message_id: each.payload for each in queue.read_many(1000)}
    assert [payloads[each] for each in ids] == list(range(600))


def test_a_batch_takes_messages_and_pairs_and_may_be_empty(queue: Queue) -> None:
    assert queue.write_many([]) == []
    queue.write_many([("pair", "t"), Message("message", "t", headers={"h": "1"})])
    found = sorted(queue.read_many(9), key=lambda each: each.message_id)
    assert [(each.payload, dict(each.headers)) for each in found] == [("pair", {}), ("message", {"h": "1"})]


@pytest.mark.everywhere
def test_order_within_a_stream_is_that_of_the_writes(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=1)
    queue.write_many([(number, "t") for number in range(20)])
    for number in range(20, 25):
        queue.write(number, shard_key="t")
    assert [each.payload for each in queue.read_many(7)] == list(range(7))
    assert [queue.read().payload for _ in range(18)] == list(range(7, 25))


def test_two_clients_write_to_one_queue(open_queue: OpenQueue, world: World) -> None:
    mine, theirs = open_queue(streams=4), open_queue(by=world.client(), streams=4)
    ids = {mine.write("mine", shard_key="t"), theirs.write("theirs", shard_key="t")}
    assert {each.message_id for each in theirs.read_many(9)} == ids


def test_a_client_names_many_queues(client: Client, queue_name: str) -> None:
    first, second = client.queue(queue_name + "1", streams=2), client.queue(queue_name + "2", streams=2)
    first.write("first", shard_key="t")
    second.write("second", shard_key="t")
    assert [each.payload for each in first.read_many(9)] == ["first"]
    assert [each.payload for each in second.read_many(9)] == ["second"]


@pytest.mark.everywhere
def test_a_full_queue_refuses_a_write_and_takes_it_once_there_is_room(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=2, max_len=3)
    queue.write_many([(number, "t") for number in range(3)])
    with pytest.raises(QueueFull, match="max_len"):
        queue.write("no", shard_key="t")
    delivery = queue.read()
    with pytest.raises(QueueFull):  # in flight counts
        queue.write("no", shard_key="t")
    delivery.ack()
    queue.write("yes", shard_key="t")
    assert queue.len() == 3


@pytest.mark.everywhere
def test_of_a_batch_that_would_overfill_the_queue_the_first_are_written(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=2, max_len=3)
    with pytest.raises(PartlyWritten) as caught:
        queue.write_many([(number, "t") for number in range(5)])
    assert [isinstance(each, QueueFull) for each in caught.value.results] == [False] * 3 + [True] * 2
    assert queue.len() == 3


def test_a_batch_of_more_than_one_chunk_says_which_were_written(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=2, max_len=300)
    with pytest.raises(PartlyWritten) as caught:
        queue.write_many([(number, "t") for number in range(400)])
    written = [index for index, each in enumerate(caught.value.results) if isinstance(each, str)]
    assert written == list(range(240))  # four fifths are what one alone gets
    assert sorted(each.payload for each in queue.read_many(1000)) == written


@pytest.mark.parametrize(("window", "mark"), [(0, b"k"), (1, b"K")])
def test_a_message_is_in_one_stream_with_plain_fields(
    open_queue: OpenQueue, world: World, window: int, mark: bytes
) -> None:
    queue = open_queue(window=window)
    message_id = queue.write(b"body", shard_key="t", headers={"a": "1"})
    entry, _, place = message_id.rpartition("-")
    [(stored, fields)] = world.raw.xrange(queue.state.keys.stream(int(place)))
    assert stored.decode() == entry
    assert fields == {mark: b"t", b"b": b"body", b"h": b"\x81\xa1a\xa11"}


def test_a_write_that_is_refused_leaves_nothing_of_its_producer(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=4, max_len=1)
    queue.write("first", shard_key="t")
    before = world.dump()
    with pytest.raises(QueueFull):
        open_queue(by=world.client(), streams=4, streams_per_shard=4, max_len=1).write("second", shard_key="t")
    assert world.dump() == before
