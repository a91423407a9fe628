"""resize: more streams at once, fewer when they are empty, nothing stranded, whoever thinks what."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial

import pytest

from shardq import ConfigError, Queue
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World, drained
from tests.waiting import eventually


def keys_for(queue: Queue, stream: int) -> str:
    """A shard key whose shard is just that stream, in a queue with one stream per shard."""
    return next(key for key in map(str, range(10_000)) if queue.state.shard(key) == (stream,))


def finished(queue: Queue, streams: int) -> bool:
    """Whether the queue is read from that many streams; reads see to it, at most once a second."""
    queue.read_many(1)
    return len(queue.stats().streams) == streams


@pytest.mark.everywhere
def test_more_streams_are_used_at_once(queue: Queue, world: World) -> None:
    old = queue.write_many([(number, f"t{number}") for number in range(20)])
    held = queue.read_many(5)
    assert queue.resize(32) == (32, 32)
    new = queue.write_many([(number, f"t{number}") for number in range(100)])
    assert len({each.rpartition("-")[2] for each in new}) > 4
    assert queue.ack_many(held) == []
    found = {each.message_id for each in [*held, *drained(queue)]}
    assert found == {*old, *new}
    assert world.census(queue).problems() == []


@pytest.mark.everywhere
@pytest.mark.parametrize(
    ("streams", "fewer", "holds"), [(4, 3, 3), (4, 2, 2), (4, 2, 3), (2, 1, 1), (9, 8, 8), (5, 1, 1)]
)
def test_a_stream_that_holds_something_is_read_until_it_is_empty(
    open_queue: OpenQueue, world: World, streams: int, fewer: int, holds: int
) -> None:
    """Defect 1: the prior art looked at the wrong streams, so that a shrink left a message behind."""
    queue = open_queue(streams=streams, streams_per_shard=1)
    assert queue.read_many(1) == []
    message_id = queue.write("kept", shard_key=keys_for(queue, holds))
    assert message_id.endswith(f"-{holds}")
    assert queue.resize(fewer) == (holds + 1, fewer)
    assert (queue.len(), queue.stats().backlog) == (1, 1)
    delivery = queue.read()
    assert delivery.message_id == message_id
    delivery.ack()
    assert queue.resize(fewer) == (fewer, fewer)
    assert queue.state.keys.stream(holds) not in world.stored()


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_reads_finish_the_shrinking(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=6, window=0)
    queue.write_many([(number, f"t{number}") for number in range(60)])
    assert queue.resize(2) == (6, 2)
    new = queue.write_many([(number, f"t{number}") for number in range(60)])
    assert {each.rpartition("-")[2] for each in new} == {"0", "1"}
    found = drained(queue)
    assert len(found) == 120
    assert len(queue.stats().streams) == 6  # what is in flight keeps its stream
    queue.ack_many(found)
    eventually(lambda: finished(queue, 2), every=0.1)
    assert queue.len() == 0


def test_what_is_in_flight_comes_back_though_its_stream_is_not_written_to(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=1)
    queue.read_many(1)
    for stream in range(4):
        queue.write(stream, shard_key=keys_for(queue, stream))
    held = queue.read_many(9)
    assert queue.resize(1) == (4, 1)
    for each in held[:2]:
        each.nack()
    held[2].nack(delay=50)
    world.elapse(queue, 60)
    assert sorted(each.payload for each in queue.read_many(9)) == [0, 1, 2, 3]
    assert world.census(queue).problems() == []


def test_shrinking_and_growing_again_starts_afresh(queue: Queue, world: World) -> None:
    for _ in range(3):
        queue.write_many([(number, f"t{number}") for number in range(20)])
        found = queue.read_many(100)
        assert len(found) == 20
        queue.ack_many(found)
        assert queue.resize(1) == (1, 1)
        assert queue.resize(8) == (8, 8)
        assert world.census(queue).problems() == []


@pytest.mark.everywhere
def test_a_writer_with_another_idea_of_the_number_changes_nothing(open_queue: OpenQueue, world: World) -> None:
    """Defect 2: in the prior art every write carried a number of its own, and resized the queue."""
    queue = open_queue(streams=4)
    queue.write(1, shard_key="t")
    other = open_queue(by=world.client(), streams=64)
    ids = other.write_many([(number, f"t{number}") for number in range(50)])
    assert {int(each.rpartition("-")[2]) for each in ids} <= {0, 1, 2, 3}
    assert (queue.stats().wanted, len(queue.stats().streams)) == (4, 4)


def test_a_writer_that_was_away_while_the_queue_shrank_does_not_strand_its_message(
    open_queue: OpenQueue, world: World
) -> None:
    queue, other = open_queue(streams=8), open_queue(by=world.client())
    other.write(0, shard_key="t")
    queue.read().ack()
    assert queue.resize(1) == (1, 1)
    ids = [other.write(1, shard_key=f"t{number}") for number in range(9)]
    assert {each.rpartition("-")[2] for each in ids} == {"0"}
    assert len(queue.read_many(20)) == 9
    assert world.census(queue).problems() == []


def test_a_reader_that_was_away_while_the_queue_grew_sees_everything(open_queue: OpenQueue, world: World) -> None:
    queue, other = open_queue(streams=2), open_queue(by=world.client())
    queue.write(0, shard_key="t")
    other.read().ack()
    queue.resize(40)
    queue.write_many([(number, f"t{number}") for number in range(100)])
    assert len(drained(other)) == 100


class Crowd:
    """Writers, readers and operators of one queue, each on a thread and a client of its own."""

    def __init__(self, open_own: Callable[[], Queue]) -> None:
        self._open = open_own
        self._done = threading.Event()
        self.written: list[str] = []
        self.acked: list[str] = []
        self.failures: list[BaseException] = []
        self.unfinished: list[str] = []

    def run(self, sizes: list[list[int]]) -> None:
        """Write and resize, to each list of numbers by another operator, while others read; until all is drained."""
        workers: list[Callable[[Queue], None]] = [
            *(partial(self._resize, numbers) for numbers in sizes),
            self._write,
            self._write,
        ]
        busy, readers = self._start(workers), self._start([self._read, self._read])
        for thread in busy:
            thread.join(50)
        self._done.set()
        for thread in readers:
            thread.join(50)
        self.unfinished = [thread.name for thread in (*busy, *readers) if thread.is_alive()]

    def _start(self, works: list[Callable[[Queue], None]]) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        return threads

    def _guarded(self, work: Callable[[Queue], None]) -> None:
        try:
            work(self._open())
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.failures.append(error)

    def _write(self, queue: Queue) -> None:
        for number in range(30):
            self.written += queue.write_many([(number, f"t{key}") for key in range(5)])
            self.written.append(queue.write(number, shard_key=f"t{number}"))

    def _resize(self, numbers: list[int], queue: Queue) -> None:
        for number in numbers:
            queue.resize(number)

    def _read(self, queue: Queue) -> None:
        while True:
            last = self._done.is_set()
            found = queue.read_many(20)
            self.acked += [each.message_id for each in found]
            assert queue.ack_many(found) == []
            if last and not found:
                return


@pytest.mark.once
def test_nothing_is_lost_or_stranded_while_several_resize_write_and_read(
    open_queue: OpenQueue, world: World, rng: random.Random
) -> None:
    open_queue(streams=4).read_many(1)
    crowd = Crowd(lambda: open_queue(by=world.client()))
    crowd.run([[rng.randint(1, 20) for _ in range(20)] for _ in range(2)])
    assert crowd.unfinished == []  # who still writes or reads has messages that nobody counts
    queue = open_queue(by=world.client())
    left = [each.message_id for each in drained(queue)]
    assert crowd.failures == []
    assert sorted(crowd.acked + left) == sorted(crowd.written)
    assert world.census(queue).problems() == []


@pytest.mark.parametrize("bad", [0, -1, 4097, "8", 2.0, None, True])
def test_a_bad_number_is_refused(queue: Queue, world: World, bad: int) -> None:
    with pytest.raises(ConfigError, match="streams"):
        queue.resize(bad)
    assert world.stored() == set()


def test_what_does_not_exist_cannot_be_resized(queue: Queue, world: World) -> None:
    with pytest.raises(ConfigError, match="there is no queue"):
        queue.resize(8)
    assert world.stored() == set()


def test_operators_calls_do_not_bring_a_deleted_queue_half_back(queue: Queue, world: World) -> None:
    queue.write(1, shard_key="t")
    for key in world.stored():
        world.raw.delete(key)
    for call in (lambda: queue.resize(8), queue.purge, lambda: queue.configure(max_len=5), lambda: queue.redrive([])):
        with pytest.raises(ConfigError, match="there is no queue"):
            call()
    assert world.stored() == set()
