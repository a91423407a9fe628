"""prefer_stream: tried first, without waiting on it and without starving others (defect 11)."""

from __future__ import annotations

import time

import pytest

from shardq import ConfigError, Queue
from tests.conformance.conftest import OpenQueue
from tests.conformance.queue.test_resize import keys_for
from tests.conformance.world import World, drained
from tests.state import set_line


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """Four streams, one to a shard, so that a key chooses its stream; without a window, so that a stream is filled."""
    queue = open_queue(streams=4, streams_per_shard=1, window=0)
    assert queue.read_many(1) == []
    return queue


def fill(queue: Queue, *counts: int) -> None:
    """So many messages into each stream; the payload is the stream's number."""
    for stream, count in enumerate(counts):
        queue.write_many([(stream, keys_for(queue, stream))] * count)


@pytest.mark.everywhere
@pytest.mark.parametrize("prefer", range(4))
def test_the_preferred_stream_comes_first(queue: Queue, prefer: int) -> None:
    fill(queue, 5, 5, 5, 5)
    assert queue.read(prefer_stream=prefer).stream == prefer


@pytest.mark.parametrize("prefer", range(4))
def test_a_reader_that_always_prefers_a_noisy_stream_does_not_starve_the_others(queue: Queue, prefer: int) -> None:
    fill(queue, *(50 if stream == prefer else 1 for stream in range(4)))
    streams = [queue.read(prefer_stream=prefer).stream for _ in range(8)]
    assert set(streams) == {0, 1, 2, 3}
    assert streams[0] == prefer


def test_preferring_takes_one_turn_ahead_of_its_share_at_most(queue: Queue) -> None:
    fill(queue, 40, 40, 40, 40)
    streams = [queue.read(prefer_stream=2).stream for _ in range(40)]
    for seen in range(1, 41):
        assert streams[:seen].count(2) <= seen / 4 + 2
    assert all(streams.count(stream) >= 8 for stream in range(4))


def test_nothing_is_waited_for_while_others_have_work(queue: Queue) -> None:
    fill(queue, 1, 0, 0, 0)
    start = time.monotonic()
    assert queue.read(prefer_stream=3, block=20).stream == 0
    assert time.monotonic() - start < 10


def test_batches_may_prefer_too(queue: Queue, world: World) -> None:
    fill(queue, 10, 10, 10, 10)
    found = queue.read_many(9, prefer_stream=1)
    assert found[0].stream == 1
    assert {each.stream for each in found} == {0, 1, 2, 3}
    assert len(drained(queue)) == 31
    assert world.census(queue).problems() == []


def test_a_stream_among_many_is_found_though_it_is_not_next(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=100, streams_per_shard=1)
    assert queue.read_many(1) == []
    queue.write_many([(number, f"t{number}") for number in range(300)])
    busy = [stream for stream, count in enumerate(queue.stats().streams) if count]
    for stream in (busy[-1], busy[0], busy[len(busy) // 2]):
        assert queue.read(prefer_stream=stream).stream == stream
    assert len(drained(queue)) == 297


def test_a_stream_that_the_queue_does_not_have_is_no_preference(queue: Queue) -> None:
    fill(queue, 1, 1, 1, 1)
    assert len({queue.read(prefer_stream=4000).stream for _ in range(4)}) == 4


def test_what_is_owed_is_settled_when_its_stream_goes(queue: Queue, world: World) -> None:
    fill(queue, 3, 3, 3, 3)
    found = [queue.read(prefer_stream=3) for _ in range(2)]
    found += drained(queue)
    assert queue.ack_many(found) == []
    assert queue.resize(1) == (1, 1)
    assert queue.resize(4) == (4, 4)
    fill(queue, 3, 3, 3, 3)
    assert [queue.read().stream for _ in range(12)].count(3) == 3
    assert world.census(queue).problems() == []


@pytest.mark.parametrize("bad", [-1, 4096, "3", 1.0, True])
def test_a_bad_stream_is_refused(queue: Queue, bad: int) -> None:
    with pytest.raises(ConfigError, match="prefer_stream"):
        queue.read(prefer_stream=bad)


@pytest.mark.usefixtures("real")
def test_a_preferring_reader_leaves_no_stale_signals(queue: Queue, world: World) -> None:
    set_line(world.raw, queue.state.keys, waiting=10**14)
    fill(queue, 2, 2, 2, 2)
    while queue.read_many(1, prefer_stream=1):
        pass
    start = time.monotonic()
    assert queue.read_many(1, prefer_stream=1, block=0.4) == []
    assert time.monotonic() - start >= 0.4
