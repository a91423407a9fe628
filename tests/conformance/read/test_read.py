"""read and read_many: turns, batches, leases that are granted, what is left behind."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from shardq import Empty, Queue
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World, drained


def test_an_empty_queue_gives_empty_and_an_empty_list(queue: Queue) -> None:
    with pytest.raises(Empty, match="had nothing to deliver"):
        queue.read()
    assert queue.read_many(10) == []


def test_a_read_creates_the_queue(queue: Queue, world: World) -> None:
    queue.read_many(1)
    assert queue.stats().wanted == 4
    assert {queue.state.keys.stream(number) for number in range(4)} <= world.stored()


@pytest.mark.everywhere
def test_reads_take_turns_over_the_streams(plain_queue: Queue) -> None:
    plain_queue.write_many([(number, "t") for number in range(12)])
    order = [plain_queue.read().stream for _ in range(12)]
    assert order[:4] == order[4:8] == order[8:]
    assert sorted(order[:4], key=lambda stream: stream or 0) == [0, 1, 2, 3]


@pytest.mark.everywhere
def test_a_batch_takes_evenly_from_the_streams(plain_queue: Queue) -> None:
    plain_queue.write_many([(number, "t") for number in range(40)])
    assert Counter(each.stream for each in plain_queue.read_many(8)) == {0: 2, 1: 2, 2: 2, 3: 2}


def test_the_offset_is_shared_by_all_readers(open_queue: OpenQueue, world: World) -> None:
    queues = [open_queue(by=world.client(), streams=4, streams_per_shard=4, window=0) for _ in range(4)]
    queues[0].write_many([(number, "t") for number in range(8)])
    assert {each.read().stream for each in queues} == {0, 1, 2, 3}


def test_a_quiet_tenant_waits_for_one_round_only(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=8, streams_per_shard=1)
    queue.write_many([("noisy", "noisy")] * 100)
    quiet = next(key for key in map(str, range(99)) if queue.state.shard(key) != queue.state.shard("noisy"))
    queue.write("quiet", shard_key=quiet)
    assert "quiet" in [queue.read().payload for _ in range(2)]


@pytest.mark.everywhere
def test_many_streams_are_read_with_few_declared(open_queue: OpenQueue) -> None:
    """Beyond eight streams a read declares only those that it expects: none is skipped, none is forgotten."""
    queue = open_queue(streams=200, streams_per_shard=3)
    queue.write_many([(number, f"tenant-{number}") for number in range(400)])
    found = [queue.read() for _ in range(100)]
    streams = {(each.stream, each.message_id.partition("@")[2]) for each in found}  # a partition has streams of its own
    assert len(streams) == 100  # a round gives one of each
    assert len({each.message_id for each in drained(queue)}) == 300


def test_a_batch_never_exceeds_what_was_asked_for(queue: Queue) -> None:
    queue.write_many([(number, "t") for number in range(30)])
    assert [len(queue.read_many(count)) for count in (1, 7, 1000, 5)] == [1, 7, 22, 0]


@pytest.mark.everywhere
@pytest.mark.parametrize("window", [0, 1])
@pytest.mark.parametrize("single", [True, False], ids=["singles", "batches"])
def test_what_is_leased_is_not_handed_out_again(open_queue: OpenQueue, single: bool, window: int) -> None:
    queue = open_queue(streams=4, streams_per_shard=4, window=window)
    queue.write_many([(number, "t") for number in range(20)])
    found = [queue.read() for _ in range(20)] if single else queue.read_many(15) + queue.read_many(15)
    assert len(found) == len({each.message_id for each in found}) == 20
    assert queue.read_many(1) == []


def test_any_number_of_first_readers_at_once_may_create_the_queue(open_queue: OpenQueue, world: World) -> None:
    """Defect 10 of the prior art: first readers raced to create the group, and most of them got BUSYGROUP."""
    queues = [open_queue(by=world.client(), streams=4) for _ in range(8)]
    failures: list[BaseException] = []
    start = threading.Barrier(8)

    def first(queue: Queue) -> None:
        try:
            start.wait(30)
            assert queue.read_many(1) == []
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            failures.append(error)

    threads = [threading.Thread(target=first, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    queues[0].write(1, shard_key="t")
    assert queues[7].read().payload == 1


def test_readers_at_once_share_the_messages(open_queue: OpenQueue, world: World) -> None:
    writer = open_queue(streams=8)
    ids = writer.write_many([(number, f"tenant-{number % 5}") for number in range(200)])
    found: list[str] = []

    def drain(queue: Queue) -> None:
        while batch := queue.read_many(7):
            found.extend(each.message_id for each in batch)

    threads = [threading.Thread(target=drain, args=(open_queue(by=world.client()),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found) == sorted(ids)


def test_the_pickup_delay_is_the_servers(queue: Queue) -> None:
    queue.write(1, shard_key="t")
    assert 0 <= queue.read().pickup_delay < 10


def test_a_reader_sees_what_is_left_of_its_lease(queue: Queue) -> None:
    queue.write(1, shard_key="t")
    delivery = queue.read(visibility_timeout=100)
    assert 80 < delivery.remaining <= 99  # 1 % early by construction


def test_an_entry_that_somebody_deleted_is_counted_as_vanished(queue: Queue, world: World) -> None:
    ids = queue.write_many([(number, "t") for number in range(8)])
    entry, _, place = ids[0].rpartition("-")
    world.raw.xdel(queue.state.keys.stream(int(place)), entry)
    assert len(queue.read_many(100)) == 7
    stats = queue.stats()
    assert (stats.vanished, stats.backlog, stats.in_flight) == (1, 0, 7)
    assert world.census(queue).problems() == []
