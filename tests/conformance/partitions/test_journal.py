"""The journal of a queue with partitions: each keeps its own, and a page is of all, with a position that names them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from shardq import ConfigError, Queue
from shardq.model import Event
from shardq.model.event import before
from shardq.partitions.homes import home
from shardq.partitions.resize import store_map
from shardq.partitions.sums import MAX_EVENTS_BEFORE
from tests.conformance.conftest import OpenQueue
from tests.conformance.partitions.maps import change_map, delete_last
from tests.conformance.world import World
from tests.waiting import eventually

PARTITIONS = 3
TENANTS = {home(f"tenant-{number}", PARTITIONS): f"tenant-{number}" for number in range(20)}


def opened(open_queue: OpenQueue, length: int = 3000) -> Queue:
    """The test's queue, with partitions and a journal."""
    queue = open_queue(partitions=PARTITIONS, streams=8, streams_per_shard=2, journal=length)
    queue.declare()
    return queue


def wrote(queue: Queue, each: int) -> list[str]:
    """Write messages to each partition in turn. Return their ids in order."""
    return [queue.write("x", shard_key=tenant) for _ in range(each) for tenant in TENANTS.values()]


def read(queue: Queue, count: int, after: int = 0) -> list[Event]:
    """All events after a position, in pages of up to *count*."""
    found: list[Event] = []
    while True:
        page = queue.journal(count, after=after)
        assert len(page.events) <= count
        assert page.lost == 0
        assert after < page.position <= page.latest or page.position == after == page.latest
        found += page.events
        after = page.position
        if after == page.latest:
            return found


@pytest.mark.parametrize("count", [1, 2, 5, 1000])
def test_each_event_comes_once_with_the_id_of_its_message(open_queue: OpenQueue, count: int) -> None:
    queue = opened(open_queue)
    ids = wrote(queue, 4)
    queue.ack_many(queue.read_many(100))
    events = read(queue, count)
    assert Counter(each.kind for each in events) == dict.fromkeys(("written", "delivered", "acked"), len(ids))
    for kind in ("written", "delivered", "acked"):
        assert sorted(each.message_id for each in events if each.kind == kind) == sorted(ids)
    for tenant in TENANTS.values():
        own = [each for each in events if each.shard_key == tenant]
        assert [each.number for each in own] == sorted(each.number for each in own)


def test_a_page_is_in_the_order_of_the_times(open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    wrote(queue, 4)
    times = [each.time for each in queue.journal(100).events]
    assert times == sorted(times)


def test_who_reads_on_gets_what_came_since(world: World, open_queue: OpenQueue) -> None:
    """From the number that he kept: it is one number, whoever reads on."""
    queue = opened(open_queue)
    wrote(queue, 2)
    position = int(str(queue.journal(100).position))
    assert read(queue, 100, position) == []
    late = queue.write("x", shard_key=TENANTS[2])
    again = world.client().queue(queue.name, partitions=PARTITIONS)
    assert [each.message_id for each in read(again, 100, position)] == [late]


def test_what_was_done_to_all_partitions_is_told_once(open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    queue.configure(max_deliveries=5, by="ann")
    queue.pause(TENANTS[1])
    queue.set_weights({TENANTS[2]: 2})
    queue.resume(TENANTS[1])
    for count in (1, 2, 100):
        assert [each.kind for each in read(queue, count)] == ["configured", "paused", "weighted", "resumed"]


def test_what_was_set_is_told_as_it_was_given(world: World, open_queue: OpenQueue) -> None:
    """Not the part of it that the head has. Of another map the number of partitions is told."""
    queue = opened(open_queue)
    queue.configure(max_len=100, total_rate=2.5, max_deliveries=4)
    queue.configure(max_len=0)
    told = [dict(each.values) for each in read(queue, 100) if each.kind == "configured"]
    given = {"max_len": "100", "total_rate": "2.5", "total_burst": "0", "max_deliveries": "4"}
    assert told == [given, {"max_len": "0"}]
    layer: Any = queue
    state, parts = layer.state, layer.state.parts
    layer.client.run(store_map(state, parts.make, parts.map, replace(parts.map, written=2)))
    assert dict(read(queue, 100)[-1].values) == {"partitions": "2"}


def test_the_newest_events_of_each_are_those_before_the_end(open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    wrote(queue, 5)
    found = queue.journal(100, after=before(queue.journal(1).latest, 2 * PARTITIONS)).events
    assert Counter(each.shard_key for each in found) == dict.fromkeys(TENANTS.values(), 2)


def test_what_a_journal_keeps_no_more_is_told_as_lost_once(open_queue: OpenQueue) -> None:
    queue = opened(open_queue, length=PARTITIONS)
    total = 3 * 300
    for tenant in TENANTS.values():
        for _ in range(3):
            queue.write_many([("x", tenant)] * 100)
    seen = lost = position = 0
    while True:
        page = queue.journal(50, after=position)
        seen, lost, position = seen + len(page.events), lost + page.lost, page.position
        if position == page.latest:
            break
    assert lost > 0
    assert seen + lost == total


def test_each_partition_says_what_it_has_lost(open_queue: OpenQueue) -> None:
    queue = opened(open_queue, length=PARTITIONS)
    first = queue.journal(1)
    for _ in range(3):
        queue.write_many([("x", TENANTS[1])] * 100)
    page = queue.journal(1000, after=first.position)
    assert page.lost > 0
    assert page.lost_in == {1: page.lost}
    assert queue.journal(1000, after=page.position).lost_in == {}


def test_what_a_partition_had_that_was_removed_and_made_anew_is_lost(world: World, open_queue: OpenQueue) -> None:
    """Once, however it is read. A new queue begins with its first event, as one without partitions."""
    queue = opened(open_queue)
    wrote(queue, 1)
    seen = queue.journal(1000).position
    queue.ack_many(queue.read_many(9))
    made_anew(world, queue)
    late = world.client().queue(queue.name, partitions=PARTITIONS)
    new = late.write("x", shard_key=TENANTS[2])
    events, lost = lost_of(late, seen)
    assert new in [each.message_id for each in events]
    assert lost == {2: 1}
    assert lost_of(late, late.journal(1000, after=seen).position) == ([], {})
    assert lost_of(late, 0)[1] == {}
    queue_id = late.stats().id
    late.delete(expected=None)
    again = world.client().queue(queue.name, partitions=PARTITIONS, streams=8, streams_per_shard=2, journal=3000)
    again.write("x", shard_key=TENANTS[2])
    assert lost_of(again, seen)[1] == {}
    assert again.journal(1, after=seen).queue_id != queue_id


def made_anew(world: World, queue: Queue) -> None:
    """Remove the last partition, as `tidy` does, and make it anew, as a resize does later."""
    change_map(world, queue, written=PARTITIONS - 1, read=PARTITIONS)
    delete_last(world, queue)
    deleted = now(world)
    eventually(lambda: now(world) > deleted + MAX_EVENTS_BEFORE)
    change_map(world, queue, written=PARTITIONS, read=PARTITIONS)
    world.client().queue(queue.name).configure(journal=3000)


def now(world: World) -> int:
    """The time of the server, in microseconds."""
    seconds, micros = world.raw.time()
    return int(seconds) * 1_000_000 + int(micros)


def lost_of(queue: Queue, after: int) -> tuple[list[Event], dict[int, int]]:
    """All events after a position, in pages of one, and how many were lost in which partition."""
    found: list[Event] = []
    lost: Counter[int] = Counter()
    while True:
        page = queue.journal(1, after=after)
        assert page.lost == sum(page.lost_in.values())
        lost.update(page.lost_in)
        found += page.events
        after = page.position
        if after == page.latest:
            return found, dict(lost)


def test_what_is_no_position_is_refused(open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    for wrong in (-1, 1.5, "5"):
        with pytest.raises(ConfigError, match="after"):
            queue.journal(after=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="count"):
        queue.journal(0)
