"""Blocked readers: woken at once by whatever becomes deliverable, and never given Empty early.

Readers here look for themselves each minute only (`wait_slice`), so what comes within `SOON` was a wake-up.
"""

from __future__ import annotations

import os
import queue as handoff
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from shardq import Client, Delivery, Empty, Queue
from shardq.client import base
from shardq.ops.read.waiting import waiting_of
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.state import set_line
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("real")
SOON = 15.0
SLICE = 60
StartReader: TypeAlias = "Callable[..., Reader]"
StartReaders: TypeAlias = "Callable[..., list[Reader]]"


class Reader(threading.Thread):
    """Blocks in one read; what it gets is in `found`."""

    def __init__(self, queue: Queue, visibility: float | None, block: float = 40) -> None:
        super().__init__(daemon=True)
        self._queue, self._visibility, self._block = queue, visibility, block
        self.found: handoff.Queue[Delivery | BaseException] = handoff.Queue()
        self.start()

    def run(self) -> None:
        try:
            self.found.put(self._queue.read(block=self._block, visibility_timeout=self._visibility))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.found.put(error)

    def got(self, within: float = SOON) -> Delivery:
        """What it was given, which must come soon."""
        found = self.found.get(timeout=within)
        assert not isinstance(found, BaseException), found
        return found


@pytest.fixture
def start_reader(queue: Queue) -> Iterator[StartReader]:
    """Starts readers; what a failed test leaves blocked is let go."""
    readers: list[Reader] = []

    def start(by: Queue, visibility: float | None = None) -> Reader:
        readers.append(Reader(by, visibility))
        return readers[-1]

    yield start
    if left := [reader for reader in readers if reader.is_alive()]:
        queue.write_many([(0, "t")] * 20)
        for reader in left:
            reader.join(50)


@pytest.fixture
def patient(world: World, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client whose readers rely on being woken."""
    monkeypatch.setattr(base, "MAX_SLICE", SLICE)
    return world.client(wait_slice=SLICE)


@pytest.fixture
def waiting_queue(open_queue: OpenQueue, patient: Client) -> Queue:
    """The test's queue, for readers that block."""
    queue = open_queue(by=patient, streams=4, streams_per_shard=4)
    assert queue.read_many(1) == []
    return queue


def blocked(world: World, queue: Queue, count: int) -> None:
    """Wait until that many clients block on the server."""
    eventually(lambda: world.blocked(queue) == count, what=f"{count} blocked readers")


def waiters(queue: Queue) -> int:
    """How many readers of this client wait."""
    parts = queue.state.parts
    if parts is None:
        return len(waiting_of(queue.state).waiters())
    return len(parts.common.stands._waiting) if parts.common.stands else 0


@pytest.fixture(params=["shared", "own"])
def start_readers(
    request: pytest.FixtureRequest,
    waiting_queue: Queue,
    open_queue: OpenQueue,
    world: World,
    start_reader: StartReader,
) -> StartReaders:
    """Starts readers that block, all through one client or each through its own; they block when it returns."""

    def start(count: int, **settings: Any) -> list[Reader]:
        if request.param == "own":
            clients = [world.client(wait_slice=SLICE) for _ in range(count)]
            readers = [start_reader(open_queue(by=client), **settings) for client in clients]
            blocked(world, waiting_queue, count)
        else:
            readers = [start_reader(waiting_queue, **settings) for _ in range(count)]
            eventually(lambda: waiters(waiting_queue) == count)
            blocked(world, waiting_queue, 1)
        return readers

    return start


@pytest.mark.everywhere
def test_empty_comes_at_the_deadline_and_not_before(waiting_queue: Queue) -> None:
    start = time.monotonic()
    with pytest.raises(Empty):
        waiting_queue.read(block=0.4)
    assert time.monotonic() - start >= 0.4
    start = time.monotonic()
    assert waiting_queue.read_many(5, block=0.2) == []
    assert time.monotonic() - start >= 0.2


def test_empty_comes_at_the_deadline_also_after_many_short_looks(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(by=world.client(wait_slice=0.05), streams=4)
    start = time.monotonic()
    with pytest.raises(Empty):
        queue.read(block=0.5)
    assert 0.5 <= time.monotonic() - start < SOON


def test_a_signal_that_nobody_needs_any_more_does_not_end_the_wait(
    waiting_queue: Queue, queue: Queue, world: World
) -> None:
    """Defect 5: a message that was taken without waiting left its signal behind, and the next wait ended at once."""
    set_line(world.raw, queue.state.keys, waiting=10**14)  # somebody may be blocked, so writes notify
    for number in range(5):
        queue.write(number, shard_key="t")
    assert world.raw.xlen(queue.state.keys.notifications) == 5
    assert len(queue.read_many(9)) == 5
    start = time.monotonic()
    with pytest.raises(Empty):
        waiting_queue.read(block=0.4)
    assert time.monotonic() - start >= 0.4


@pytest.mark.everywhere
def test_a_write_wakes_a_blocked_reader(
    waiting_queue: Queue, queue: Queue, world: World, start_reader: StartReader
) -> None:
    reader = start_reader(waiting_queue)
    blocked(world, queue, 1)
    message_id = queue.write("now", shard_key="t")
    assert reader.got().message_id == message_id


@pytest.mark.everywhere
def test_each_message_of_a_batch_wakes_a_reader(queue: Queue, start_readers: StartReaders) -> None:
    """Defect 4: eight writes in one transaction woke one of eight readers."""
    readers = start_readers(8)
    ids = queue.write_many([(number, "t") for number in range(8)])
    assert sorted(reader.got().message_id for reader in readers) == sorted(ids)


def test_two_writes_wake_two_readers_that_came_up_empty(queue: Queue, start_readers: StartReaders) -> None:
    readers = start_readers(2)
    ids = [queue.write(number, shard_key="t") for number in range(2)]
    assert sorted(reader.got().message_id for reader in readers) == sorted(ids)


@pytest.mark.everywhere
def test_a_delayed_message_wakes_a_reader_when_it_is_due(
    waiting_queue: Queue, queue: Queue, world: World, start_reader: StartReader
) -> None:
    reader = start_reader(waiting_queue)
    blocked(world, queue, 1)
    queue.write("later", shard_key="t", delay=0.4)
    delivery = reader.got()
    assert delivery.payload == "later"
    assert delivery.pickup_delay < SOON


@pytest.mark.everywhere
def test_the_end_of_a_lease_wakes_a_reader(
    waiting_queue: Queue, queue: Queue, world: World, start_reader: StartReader
) -> None:
    queue.write(1, shard_key="t")
    queue.read(visibility_timeout=0.5)
    reader = start_reader(waiting_queue)
    delivery = reader.got()
    assert (delivery.count, delivery.last_error) == (2, "lease ended")


def test_the_end_of_a_short_lease_wakes_a_reader_that_blocked_before_it_was_granted(
    queue: Queue, start_readers: StartReaders
) -> None:
    """Promise 3: the holder was woken itself, so the other one does not know of the lease."""
    readers = start_readers(2, visibility=0.4)
    queue.write(1, shard_key="t")
    assert sorted(reader.got().count for reader in readers) == [1, 2]


def test_what_one_reader_leaves_of_a_mass_that_came_due_wakes_the_others(
    queue: Queue, world: World, start_readers: StartReaders
) -> None:
    """They know of no event before the leases end, in ten minutes. One batch is all that looks at the mass then."""
    ids = queue.write_many([(number, f"t{number % 7}") for number in range(200)])
    held = [each for _ in range(5) for each in queue.read_many(100, visibility_timeout=600)]
    assert len(held) == len(ids)
    readers = start_readers(3, visibility=600)
    world.elapse(queue, 700)
    batch = queue.read_many(20, visibility_timeout=600)
    assert len(batch) == 20
    found = [*batch, *(reader.got() for reader in readers)]
    assert len({each.message_id for each in found}) == 23
    assert {each.count for each in found} == {2}


def test_a_shortened_lease_wakes_a_reader_when_it_ends(
    waiting_queue: Queue, queue: Queue, world: World, start_reader: StartReader
) -> None:
    queue.write(1, shard_key="t")
    held = queue.read(visibility_timeout=600)
    reader = start_reader(waiting_queue)
    blocked(world, queue, 1)
    held.extend(0.3)
    assert reader.got().count == 2


@pytest.mark.parametrize("delay", [0, 0.4])
def test_a_message_that_is_given_back_wakes_a_reader(
    waiting_queue: Queue, queue: Queue, world: World, start_reader: StartReader, delay: float
) -> None:
    queue.write(1, shard_key="t")
    held = queue.read()
    reader = start_reader(waiting_queue)
    blocked(world, queue, 1)
    held.nack(delay=delay)
    assert reader.got().count == 2


def test_a_redriven_message_wakes_a_reader(
    waiting_queue: Queue, queue: Queue, world: World, start_reader: StartReader
) -> None:
    message_id = queue.write(1, shard_key="t")
    queue.read().reject("no")
    reader = start_reader(waiting_queue)
    blocked(world, queue, 1)
    queue.redrive(queue.dead())
    assert reader.got().message_id == message_id


def test_a_reader_survives_the_loss_of_what_it_waits_on(
    waiting_queue: Queue, queue: Queue, world: World, start_reader: StartReader
) -> None:
    """Defect 9: when the notifications were gone, blocked readers failed with UNBLOCKED."""
    reader = start_reader(waiting_queue)
    blocked(world, queue, 1)
    world.raw.delete(queue.state.keys.notifications)
    eventually(lambda: world.raw.exists(queue.state.keys.notifications), what="mended notifications")
    blocked(world, queue, 1)
    queue.write(1, shard_key="t")
    assert reader.got().payload == 1


def test_readers_that_come_and_go_leave_nothing_behind(
    waiting_queue: Queue, queue: Queue, world: World, start_reader: StartReader
) -> None:
    for number in range(5):
        reader = start_reader(waiting_queue)
        blocked(world, queue, 1)
        queue.write(number, shard_key="t")
        reader.got().ack()
    assert queue.read_many(1) == []
    assert world.raw.xlen(queue.state.keys.notifications) == 0
    [group] = world.raw.xinfo_groups(queue.state.keys.notifications)
    assert (group["pending"], group["consumers"] <= 1) == (0, True)


def test_a_busy_queue_writes_no_notifications(queue: Queue, world: World) -> None:
    queue.write_many([(number, "t") for number in range(9)])
    assert world.raw.xlen(queue.state.keys.notifications) == 0


STOPPED = """
import sys
from shardq import Client

client = Client.from_url(sys.argv[1], wait_slice=5)
client.queue(sys.argv[2], create=True).read(block=60, visibility_timeout=1)
"""


@pytest.mark.once
def test_when_the_woken_reader_dies_another_gets_the_message_when_the_lease_ends(
    waiting_queue: Queue, queue: Queue, world: World, start_reader: StartReader
) -> None:
    """Defect 6: the wake-up went to a process that was stopped and then killed, and the message with it."""
    child = subprocess.Popen([sys.executable, "-c", STOPPED, world.url, queue.name])
    try:
        blocked(world, queue, 1)
        os.kill(child.pid, signal.SIGSTOP)
        reader = start_reader(waiting_queue)
        blocked(world, queue, 2)
        queue.write("kept", shard_key="t")
        eventually(lambda: queue.stats().in_flight == 1)  # the server woke the one that is stopped, and leased it that
        child.kill()
        delivery = reader.got()
        assert (delivery.payload, delivery.count) == ("kept", 2)
    finally:
        child.kill()
        child.wait()
