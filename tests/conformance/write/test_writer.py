"""Writers: many messages under way, an id or an error for each, the order of each shard key kept."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from shardq import (
    Client,
    ClosedError,
    CodecError,
    ConfigError,
    PartlyWritten,
    Queue,
    QueueFull,
)
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World, drained

KEYS = ("a", "b", b"b", "c", "ключ")


def numbers(ids: list[str]) -> list[int]:
    """The places of messages in the order of the queue."""
    return [int(message_id.split("-")[1]) for message_id in ids]


@pytest.mark.everywhere
def test_each_message_gets_its_id_and_is_in_the_queue_once(queue: Queue) -> None:
    with queue.client.writer() as writer:
        written = [writer.write(queue, number, shard_key=f"t{number % 7}") for number in range(500)]
    ids = [each.result() for each in written]
    found = {each.message_id: each.payload for each in drained(queue)}
    assert found == dict(zip(ids, range(500), strict=True))


@pytest.mark.parametrize("window", [0, 1])
def test_messages_of_one_shard_key_are_stored_in_the_order_of_their_writes(open_queue: OpenQueue, window: int) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, window=window)
    written: dict[Any, list[Any]] = defaultdict(list)
    with queue.client.writer() as writer:
        for number in range(600):
            key = KEYS[number * number % len(KEYS)]
            written[key].append(writer.write(queue, number, shard_key=key))
    for futures in written.values():
        places = numbers([each.result() for each in futures])
        assert places == sorted(places)
    assert len(written) >= 3


def test_a_writer_takes_the_options_of_a_write(queue: Queue) -> None:
    with queue.client.writer() as writer:
        first = writer.write(queue, 1, shard_key="t", dedup_key="one", headers={"a": "1"}, deadline=600)
        second = writer.write(queue, 2, shard_key="t", dedup_key="one")
        late = writer.write(queue, 3, shard_key="t", delay=600)
    assert first.result() == second.result() != late.result()
    (delivery,) = drained(queue)
    assert (delivery.payload, dict(delivery.headers), delivery.deadline is not None) == (1, {"a": "1"}, True)
    assert queue.stats().delayed == 1


def test_one_writer_writes_to_many_queues_given_or_named(client: Client, queue_name: str) -> None:
    queues = [client.queue(f"{queue_name}.{number}", streams=2) for number in range(5)]
    with client.writer() as writer:
        for number in range(100):
            queue = queues[number % 5]
            writer.write(queue if number % 2 else queue.name, number, shard_key="t")
    assert [sorted(each.payload for each in drained(queue)) for queue in queues] == [
        list(range(first, 100, 5)) for first in range(5)
    ]


def test_a_message_that_is_refused_is_an_error_of_its_own(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=2, max_backlog=10)
    with queue.client.writer() as writer:
        written = [(key, writer.write(queue, n, shard_key=key)) for n in range(25) for key in ("flood", f"quiet{n}")]
        refused = [key for key, each in written if _failed(each)]
    assert refused == ["flood"] * 15
    assert len(drained(queue)) == 35


def test_an_error_that_nobody_asks_for_is_raised_at_the_end(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=2, max_len=3)
    writer = queue.client.writer()
    written = [writer.write(queue, number, shard_key="t") for number in range(8)]
    with pytest.raises(PartlyWritten, match=r"5 of a writer's 8 messages were not written") as raised:
        writer.flush()
    assert [type(each) for each in raised.value.results] == [QueueFull] * 5
    writer.flush()  # they are told once
    assert sum(1 for each in written if _failed(each)) == 5
    writer.write(queue, "one more", shard_key="t")
    with pytest.raises(PartlyWritten, match=r"1 of a writer's 9 messages"):
        writer.close()


def _failed(future: Any) -> bool:
    try:
        future.result(30)
    except QueueFull:
        return True
    return False


def test_the_error_of_the_block_comes_before_those_of_its_writes(
    open_queue: OpenQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue = open_queue(streams=2, max_len=1)
    with pytest.raises(ZeroDivisionError):
        _write_and_fail(queue, 3)
    assert "2 of a writer's 3 messages were not written for certain; the first error: queue" in caplog.text
    assert len(drained(queue)) == 1


def _write_and_fail(queue: Queue, count: int) -> None:
    with queue.client.writer() as writer:
        for number in range(count):
            writer.write(queue, number, shard_key="t")
        _ = 1 / 0


def test_what_is_accepted_is_written_although_the_block_fails(queue: Queue) -> None:
    with pytest.raises(ZeroDivisionError):
        _write_and_fail(queue, 50)
    assert len(drained(queue)) == 50


def test_bad_input_is_refused_at_once_and_nothing_is_accepted(queue: Queue, world: World) -> None:
    other = world.client().queue(queue.name, create=True)
    with queue.client.writer() as writer:
        for error, where, payload, key in (
            (CodecError, queue, {1, object()}, "t"),
            (ConfigError, queue, "x" * 2_000_000, "t"),
            (ConfigError, queue, 1, ""),
            (ConfigError, "no such name!", 1, "t"),
            (ConfigError, other, 1, "t"),
        ):
            with pytest.raises(error):
                writer.write(where, payload, shard_key=key)
        with pytest.raises(ConfigError, match="deadline must be later"):
            writer.write(queue, 1, shard_key="t", delay=10, deadline=5)
        assert len(writer) == 0
        assert writer, "though it has nothing under way"
    assert queue.len() == 0


@pytest.mark.parametrize("settings", [{"max_in_flight": 15}, {"max_in_flight": 1.5}, {"max_bytes": 0}])
def test_bad_settings_are_refused(client: Client, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        client.writer(**settings)


def test_a_closed_writer_accepts_nothing(queue: Queue) -> None:
    writer = queue.client.writer()
    writer.write(queue, 1, shard_key="t")
    writer.close()
    writer.close()
    with pytest.raises(ClosedError, match="writer"):
        writer.write(queue, 2, shard_key="t")
    assert queue.len() == 1


def test_large_messages_take_turns_in_a_small_window(queue: Queue) -> None:
    """Also one that is larger than the window."""
    with queue.client.writer(max_bytes=100_000) as writer:
        for number in range(20):
            writer.write(queue, bytes([number]) * (150_000 if number == 7 else 30_000), shard_key="t")
    assert sorted(each.payload[0] for each in drained(queue)) == list(range(20))


@pytest.mark.usefixtures("real")
def test_a_queue_with_a_ttl_expires_as_a_whole(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=2, ttl=300)
    with queue.client.writer() as writer:
        writer.write(queue, 1, shard_key="t")
    lifetimes = {key: world.raw.pttl(key) for key in world.stored() if queue.name in key}
    assert lifetimes
    assert all(0 < each <= 300_000 for each in lifetimes.values()), lifetimes
