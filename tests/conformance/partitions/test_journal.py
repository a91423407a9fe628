"""The journal of a queue with partitions: each keeps its own, and a page is of all, with a position that names them."""

from __future__ import annotations

from collections import Counter

import pytest

from shardq import ConfigError, Queue
from shardq.model import Event
from shardq.partitions.homes import home
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

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


def test_what_is_no_position_is_refused(open_queue: OpenQueue) -> None:
    queue = opened(open_queue)
    for wrong in (-1, 1.5, "5"):
        with pytest.raises(ConfigError, match="after"):
            queue.journal(after=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="count"):
        queue.journal(0)
