"""A queue that was deleted stays gone: calls of its consumers that come late store nothing that stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardq import Client, Delivery, Queue, ShardqError
from tests.promises.conftest import OpenClient, OpenQueue
from tests.proxy import Proxy
from tests.servers import Server
from tests.surface import calls, differences, not_called

LATE: dict[str, Callable[[Delivery], object]] = {
    "Delivery.ack": lambda delivery: delivery.ack(),
    "Delivery.ack, with a result": lambda delivery: delivery.ack(result="done"),
    "Delivery.progress": lambda delivery: delivery.progress(1, 2),
    "Delivery.nack": lambda delivery: delivery.nack(error="no"),
    "Delivery.nack, with a delay": lambda delivery: delivery.nack(delay=5),
    "Delivery.reject": lambda delivery: delivery.reject("no"),
    "Delivery.extend": lambda delivery: delivery.extend(60),
}


def stays(server: Server, name: str) -> list[str]:
    """The keys of a queue, with those of its partitions, that have no end."""
    keys = [key.decode() for key in server.run("KEYS", f"shardq:{{{name}*")]
    return sorted(key for key in keys if server.run("PTTL", key) == -1)


def tried(call: Callable[[], object]) -> None:
    """Make a call that may fail."""
    try:
        call()
    except ShardqError as error:
        print(f"the call failed: {error!r}")


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    queue = open_queue(streams=4, streams_per_shard=2, result_ttl=60, window=1)
    queue.write_many([(number, "t") for number in range(3)])
    return queue


def test_each_call_of_a_holder_comes_late() -> None:
    assert differences(LATE, calls(Delivery)) == not_called(LATE) == []


@pytest.mark.parametrize("late", LATE)
def test_a_late_call_of_a_holder_does_not_bring_a_deleted_queue_back(
    queue: Queue, open_client: OpenClient, server: Server, late: str
) -> None:
    """The holder's client has no settings for the queue, so it does not create it."""
    delivery = open_client().queue(queue.name).read()
    queue.delete(expected=None)
    assert stays(server, queue.name) == []
    tried(lambda: LATE[late](delivery))
    assert stays(server, queue.name) == []


def test_a_result_that_comes_late_for_many_does_not_bring_a_deleted_queue_back(
    queue: Queue, open_client: OpenClient, server: Server
) -> None:
    holder = open_client().queue(queue.name)
    found = holder.read_many(3)
    queue.delete(expected=None)
    tried(lambda: holder.ack_many(found, results=[1] * len(found)))
    assert stays(server, queue.name) == []


def test_a_read_whose_answer_was_lost_does_not_bring_a_deleted_queue_back(
    queue: Queue, open_client: OpenClient, server: Server
) -> None:
    """Its client asks what it was granted, and the queue is deleted before that."""
    with Proxy(server.url) as proxy:
        reader: Client = open_client(proxy.url, timeout=5)
        mine = reader.queue(queue.name)
        mine.read().ack()
        proxy.before_request(b"{jobs", lambda: queue.delete(expected=None), skip=1)
        proxy.cut_after_request(b"{jobs")
        tried(mine.read)
        tried(mine.read)
        reader.close()
        assert stays(server, queue.name) == []


def test_a_queue_that_was_made_anew_has_nothing_of_the_old_one(
    queue: Queue, open_client: OpenClient, server: Server
) -> None:
    delivery = open_client().queue(queue.name).read()
    queue.delete(expected=None)
    queue.declare()
    tried(lambda: delivery.ack(result="done"))
    stats = queue.stats()
    assert (stats.backlog, stats.in_flight, stats.result_count, stats.acked) == (0, 0, 0, 0)
