"""A client that was told nothing of partitions uses a queue that has some as any other client, from its first call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardq import Message, Queue, QueueMissing
from shardq.client.queue import Queue as PlainQueue
from shardq.client.untold import _FIND_OUT, UntoldQueue
from shardq.partitions.asking import MAX_AGE
from shardq.partitions.homes import home
from shardq.protocol.ids import split
from shardq.testing import ManualClock
from tests.conformance.conftest import OpenQueue
from tests.conformance.partitions.maps import calls_of, change_map
from tests.conformance.world import World, drained
from tests.waiting import eventually

PARTITIONS = 3
SOON = 30.0
TENANTS = [f"tenant-{number}" for number in range(20)]
OF = {home(tenant, PARTITIONS): tenant for tenant in TENANTS}
TOLD: list[dict[str, Any]] = [{}, {"streams": 4, "streams_per_shard": 2}]
"""What clients are told: nothing, or of other settings."""


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A queue with partitions."""
    queue = open_queue(partitions=PARTITIONS, streams=4, streams_per_shard=2, result_ttl=60)
    queue.declare()
    return queue


@pytest.fixture(params=TOLD, ids=["nothing", "other settings"])
def told(request: pytest.FixtureRequest, world: World, queue: Queue) -> Callable[[], Queue]:
    """Makes the same queue of another client, which was told nothing of partitions."""
    return lambda: world.client().queue(queue.name, **request.param)


def test_a_first_write_goes_home(queue: Queue, told: Callable[[], Queue]) -> None:
    for number, tenant in OF.items():
        assert split(told().write("x", shard_key=tenant))[1] == number
        assert [split(each)[1] for each in told().write_many([("y", tenant), ("z", tenant)])] == [number] * 2
    assert queue.len() == 3 * PARTITIONS


def test_a_keyed_first_write_is_stored_once(queue: Queue, told: Callable[[], Queue]) -> None:
    for tenant in OF.values():
        first = queue.write("x", shard_key=tenant, dedup_key="d")
        assert told().write("again", shard_key=tenant, dedup_key="d") == first
        assert told().write_many([Message("again", tenant, dedup_key="d")]) == [first]
        unique = queue.write("x", shard_key=tenant, unique_key="u")
        again = told().write("again", shard_key=tenant, unique_key="u")
        assert (again, again.is_new) == (unique, False)
    assert queue.len() == 2 * PARTITIONS


def test_first_writes_of_many_callers_go_home_too(told: Callable[[], Queue]) -> None:
    queue = told()
    with ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(lambda tenant: queue.write(tenant, shard_key=tenant), TENANTS * 5))
    assert [split(each)[1] for each in ids] == [home(tenant, PARTITIONS) for tenant in TENANTS * 5]
    assert Counter(each.message_id for each in drained(queue)) == Counter(ids)


@pytest.mark.parametrize("number", range(PARTITIONS))
def test_a_blocked_first_read_gets_what_comes_to_any_partition(
    real: None, world: World, queue: Queue, told: Callable[[], Queue], number: int
) -> None:
    reader = told()
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(reader.read, block=SOON)
        eventually(lambda: world.blocked(queue) >= 1)
        queue.write("x", shard_key=OF[number])
        delivery: Any = read.result(SOON)
    assert (delivery.payload, delivery.partition) == ("x", number)
    delivery.ack()


def test_a_read_that_waits_for_the_queue_gets_what_comes_to_any_partition(
    real: None, world: World, open_queue: OpenQueue
) -> None:
    queue = open_queue(partitions=PARTITIONS, streams=4, streams_per_shard=2)
    reader = world.client().queue(queue.name)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(reader.read, block=SOON)
        eventually(lambda: bool(reader.state.server_time))  # it has looked, and found no queue
        queue.write("x", shard_key=OF[2])
        delivery: Any = read.result(SOON)
        assert delivery.partition == 2


def test_a_client_that_only_looks_sees_all_partitions(queue: Queue, told: Callable[[], Queue]) -> None:
    ids = queue.write_many([(tenant, tenant) for tenant in TENANTS])
    assert told().len() == len(TENANTS)
    assert told().stats().backlog == len(TENANTS)
    assert {each.message_id for each in told().peek(100).messages} == set(ids)
    assert len(told().tenants()) == len(TENANTS)
    assert [told().status(each).state for each in ids] == ["waiting"] * len(ids)
    assert told().purge() == len(TENANTS)


def test_a_result_is_found_wherever_it_is(queue: Queue, told: Callable[[], Queue]) -> None:
    for tenant in OF.values():
        message_id = queue.write("x", shard_key=tenant)
        queue.read().ack(result=tenant)
        assert told().result(message_id) == tenant


def test_each_method_looks_first_or_finds_out_by_itself() -> None:
    """A method that is added looks first, unless somebody says that it need not."""
    public = {name for name in dir(PlainQueue) if not name.startswith("_")}
    assert public >= _FIND_OUT
    others = {name for name in public if getattr(UntoldQueue, name) is getattr(PlainQueue, name)}
    assert others == _FIND_OUT - {"write", "job", "schedules"}


def test_a_queue_without_partitions_is_a_plain_queue_after_its_first_call(world: World, open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, streams_per_shard=2)
    queue.declare()
    calls: list[Callable[[Queue], Any]] = [lambda queue: queue.write("x", shard_key="a"), lambda queue: queue.read()]
    for call in calls:
        other: Any = world.client().queue(queue.name)
        call(other)
        assert type(getattr(other, "_twin", other)).__name__ in ("Queue", "AsyncQueue")
        assert other.state.parts is None


def test_a_queue_that_is_not_there_is_missed_as_before(world: World, queue_name: str) -> None:
    queue = world.client().queue(queue_name)
    for call in (queue.len, queue.stats, lambda: queue.write("x", shard_key="a"), queue.read, queue.purge):
        with pytest.raises(QueueMissing):
            call()
    assert world.stored() == set()
    settled = world.client().queue(queue_name, streams=4, streams_per_shard=2)
    assert settled.len() == 0
    assert world.stored() == set()
    settled.write("x", shard_key="a")
    assert queue.len() == 1


# --- a queue that is given partitions while clients use it -----------------------------------------------------------


@pytest.fixture
def plain(open_queue: OpenQueue) -> Queue:
    """A queue without partitions, whose client has used it."""
    queue = open_queue(streams=4, streams_per_shard=2)
    queue.declare()
    return queue


@pytest.mark.runs_in("test-all")
def test_a_blocked_reader_of_a_plain_queue_hears_that_it_was_given_partitions(
    real: None, world: World, plain: Queue
) -> None:
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(plain.read, block=SOON)
        eventually(lambda: world.blocked(plain) >= 1)
        change_map(world, plain, written=PARTITIONS, read=PARTITIONS)
        writer = world.client().queue(plain.name)
        ids = [writer.write("x", shard_key=OF[2])]
        delivery: Any = read.result(MAX_AGE + 1.0)
    assert (delivery.message_id, delivery.partition) == (ids[0], 2)
    delivery.ack()


def test_who_writes_learns_of_new_partitions(world: World, plain: Queue) -> None:
    plain.write("x", shard_key=OF[2])
    change_map(world, plain, written=PARTITIONS, read=PARTITIONS)
    plain.write("x", shard_key=OF[2])  # with the old epoch, so it hears of the new one
    assert split(plain.write("x", shard_key=OF[2]))[1] == 2
    assert plain.len() == 3
    assert len(drained(plain)) == 3


def test_who_only_looks_learns_of_new_partitions(world: World, plain: Queue) -> None:
    clock = ManualClock(runs=True)
    looking = world.client(clock=clock).queue(plain.name)
    assert looking.len() == 0
    change_map(world, plain, written=PARTITIONS, read=PARTITIONS)
    world.client().queue(plain.name).write_many([(tenant, tenant) for tenant in OF.values()])
    assert looking.len() == 1
    clock.advance(MAX_AGE)
    eventually(lambda: looking.len() == PARTITIONS)


def test_stats_tell_of_new_partitions(world: World, plain: Queue) -> None:
    plain.stats()
    change_map(world, plain, written=PARTITIONS, read=PARTITIONS)
    world.client().queue(plain.name).write_many([(tenant, tenant) for tenant in OF.values()])
    plain.stats()
    assert plain.stats().backlog == PARTITIONS


@pytest.mark.parametrize(
    ("call", "calls"),
    [
        (lambda queue: queue.write("x", shard_key="a"), 2),
        (lambda queue: queue.write_many([("x", "a")]), 2),
        (lambda queue: queue.read_many(1), 2),
        (lambda queue: queue.len(), 2),
    ],
    ids=["write", "write_many", "read_many", "len"],
)
def test_what_the_first_call_of_a_plain_queue_takes(
    world: World, plain: Queue, call: Callable[[Queue], Any], calls: int
) -> None:
    """To open and to write or read, as ever; of who only looks, one look more, which changes nothing."""
    first = world.client().queue(plain.name)
    world.client().queue(plain.name).write("x", shard_key="a")
    first.client.queues()  # the connection is there
    before = calls_of(world)
    call(first)
    assert calls_of(world) - before == calls
    before = calls_of(world)
    call(first)
    assert calls_of(world) - before == 1
