"""What Redis lost of a queue with partitions is there again at the next call, as with a queue without any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from shardq import Empty, Limits, Queue, QueueMissing
from shardq.ops.queue.steps import Op
from shardq.partitions.homes import home
from tests.fault.conftest import Open
from tests.servers import Server
from tests.waiting import eventually

PARTITIONS: Final = 3
TENANTS: Final = {home(f"tenant-{number}", PARTITIONS): f"tenant-{number}" for number in range(20)}


@pytest.fixture
def queue(open_client: Open, server: Server, queue_name: str) -> Queue:
    """A queue that its client has written to and read."""
    queue = open_client(server.url).queue(queue_name, partitions=PARTITIONS, streams=4, streams_per_shard=2)
    for number in range(PARTITIONS):
        queue.write(number, shard_key=TENANTS[number])
    for _ in range(PARTITIONS):
        queue.read().ack()
    return queue


def lose(server: Server, queue: Queue, *numbers: int) -> None:
    """Delete all keys of these partitions."""
    with server.client() as plain:
        for number in numbers:
            plain.delete(*plain.keys(f"shardq:{{{queue.state.parts.states[number].keys.tag}}}:*"))


def read_nothing(queue: Queue) -> None:
    with pytest.raises(Empty):
        queue.read()


NEXT: Final[dict[str, Callable[[Queue], Any]]] = {
    "write": lambda queue: queue.write("work", shard_key=TENANTS[2]),
    "write to the head": lambda queue: queue.write("work", shard_key=TENANTS[0]),
    "write_many": lambda queue: queue.write_many([("work", tenant) for tenant in TENANTS.values()]),
    "read": read_nothing,
    "read_many": lambda queue: queue.read_many(5),
}


def works_in_each(queue: Queue) -> None:
    """Each tenant's message is stored, is in its partition, and comes."""
    queue.read_many(100)
    ids = {queue.write("again", shard_key=tenant) for tenant in TENANTS.values()}
    assert {each.message_id for each in queue.read_many(100)} == ids
    assert len({each.partition("@")[2] for each in ids}) == PARTITIONS


@pytest.mark.parametrize("call", NEXT)
@pytest.mark.parametrize("lost", [(0, 1, 2), (0,), (2,)], ids=["all", "the head", "one"])
def test_the_next_call_makes_it_again_where_it_was(
    server: Server, queue: Queue, call: str, lost: tuple[int, ...]
) -> None:
    before = queue.state.parts.map
    lose(server, queue, *lost)
    NEXT[call](queue)
    works_in_each(queue)
    assert queue.state.parts.map == before
    assert [each.number for each in queue.partitions()] == [0, 1, 2]


def test_what_others_have_is_read_on(server: Server, queue: Queue) -> None:
    waits = queue.write("here", shard_key=TENANTS[1])
    lose(server, queue, 0)
    assert [each.message_id for each in queue.read_many(10)] == [waits]


def rules(queue: Queue) -> tuple[Limits, float | None]:
    """What is said of one tenant."""
    found = queue.tenant(TENANTS[2])
    return found.limits, found.paused_until


def test_a_partition_has_the_limits_and_pauses_of_the_queue_again(server: Server, queue: Queue) -> None:
    queue.set_limits({TENANTS[2]: Limits(max_in_flight=1)})
    queue.pause(TENANTS[2])
    before = rules(queue)
    assert before[1] is not None
    lose(server, queue, 2)
    queue.write("work", shard_key=TENANTS[2])
    eventually(lambda: rules(queue) == before, what="they are given in the background")
    read_nothing(queue)


def test_to_resize_gives_what_its_maker_did_not_come_to_give(
    server: Server, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that made it again ended just then."""

    def ended(*_: object) -> Op[None]:
        yield from ()

    monkeypatch.setattr("shardq.partitions.losses._furnished", ended)
    queue.set_limits({TENANTS[2]: Limits(max_in_flight=1)})
    queue.pause(TENANTS[2])
    before = rules(queue)
    lose(server, queue, 2)
    queue.write("work", shard_key=TENANTS[2])
    assert rules(queue) != before
    queue.resize(partitions=PARTITIONS)
    assert rules(queue) == before


def test_a_client_without_settings_makes_no_queue(server: Server, queue: Queue, open_client: Open) -> None:
    other = open_client(server.url).queue(queue.name)
    other.read_many(1)
    lose(server, queue, 0, 1, 2)
    for call in (lambda: other.write("x", shard_key=TENANTS[2]), lambda: other.read_many(1)):
        with pytest.raises(QueueMissing):
            call()
    with server.client() as plain:
        assert plain.keys(f"shardq:*{queue.name}*") == []
