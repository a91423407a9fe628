"""Of the readers that are blocked one watches for what time brings, and a deputy for it: the others sleep."""

from __future__ import annotations

import pytest

from shardq import Limits, Message, Queue
from shardq.ops.queue.retry import retry_until
from shardq.ops.read.command import ALL_DECLARED, ReadReply, read_call, read_reply
from shardq.ops.read.waiting import Outstanding, Request
from tests.conformance.conftest import OpenQueue
from tests.conformance.operate.test_limits_blocked import woken
from tests.conformance.read.test_blocking import SLICE, Reader, StartReader, blocked, patient, start_reader
from tests.conformance.world import World
from tests.state import set_odd
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("real", "patient")
__all__ = ["patient", "start_reader"]  # fixtures: a slice lasts a minute

DEPUTY = 250
RATE = 0.8
"""Messages a second: a token comes later than a deputy looks, and sooner than all do."""


@pytest.fixture
def readers(open_queue: OpenQueue, world: World) -> list[Queue]:
    """The queue as four clients see it."""
    queues = [open_queue(by=world.client(wait_slice=SLICE), streams=4, streams_per_shard=2) for _ in range(4)]
    assert [queue.read_many(1) for queue in queues] == [[]] * 4
    return queues


def look(queue: Queue, stays: float = 30.0) -> ReadReply:
    """What a reader finds that would wait for *stays* seconds: it says that, and goes away."""
    state = queue.state
    call = read_call(state, Request(1, 30.0, None), stays, Outstanding(), declare=ALL_DECLARED)
    reply = queue._client.run(retry_until(lambda _: call.call, state.until(), state.clock))
    return read_reply(state, call, reply)


def told(queue: Queue, stays: float = 30.0) -> int:
    """When a reader that found nothing is to look again, in ms of the server's clock; 0: it may sleep."""
    assert look(queue, stays).rows == []
    return max(0, queue.state.watch)


def test_one_watches_and_another_looks_a_little_later(readers: list[Queue]) -> None:
    readers[0].write("later", shard_key="t", delay=4)
    first, second, *others = [told(reader) for reader in readers]
    assert (second - first, others) == (DEPUTY, [0, 0])


def test_who_looks_again_goes_on_watching(readers: list[Queue]) -> None:
    readers[0].write("later", shard_key="t", delay=4)
    before = [told(reader) for reader in readers]
    assert [told(reader) for reader in readers] == before


def test_who_does_not_stay_for_so_long_is_not_counted_on(readers: list[Queue]) -> None:
    readers[0].write("later", shard_key="t", delay=4)
    assert [told(reader, 0.5) for reader in readers[:2]] == [0, 0]
    assert told(readers[2]) > 0


def test_who_is_handed_a_message_wakes_another_to_watch(readers: list[Queue], world: World) -> None:
    watching, deputy, *_ = readers
    watching.write("later", shard_key="t", delay=4)
    assert (told(watching), told(deputy)) != (0, 0)
    watching.write_many([(n, "t") for n in range(2)])
    before = woken(world, watching)
    assert look(deputy).rows
    assert woken(world, watching) == before, "somebody watches"
    assert look(watching).rows
    assert woken(world, watching) == before + 1


def test_a_watch_that_was_passed_on_is_the_sleepers_who_takes_the_notification(
    readers: list[Queue], world: World, start_reader: StartReader
) -> None:
    first, deputy, sleeper, last = readers
    first.write("later", shard_key="t", delay=4)
    moment = told(first)
    assert told(deputy)
    reader = start_reader(sleeper)
    blocked(world, sleeper, 1)
    pass_on(world, first, moment)
    eventually(lambda: sleeper.state.watch == moment)
    assert abs(told(last) - moment) > DEPUTY / 2, "it is at most the deputy"
    assert reader.got().payload == "later"


def test_a_watch_that_nobody_took_is_taken_by_who_asks_next(readers: list[Queue]) -> None:
    first, _, third, _ = readers
    first.write_many([(number, "t") for number in range(3)])
    first.set_limits({"t": Limits(rate=RATE, burst=1)})
    assert look(first).rows
    before = told(first)
    eventually(lambda: look(first).rows)
    assert told(third) - before == pytest.approx(1000 / RATE, abs=2)


def test_what_comes_within_the_deputys_time_is_told_with_the_wake_up(readers: list[Queue], world: World) -> None:
    first = readers[0]
    first.write_many([(number, "t") for number in range(9)])
    first.set_limits({"t": Limits(rate=5, burst=1)})
    assert look(first).rows
    eventually(lambda: look(first).rows)
    [(entry, fields)] = world.raw.xrevrange(first.state.keys.notifications, count=1)
    assert fields[b"s"].startswith(b"@")
    assert 0 < int(fields[b"s"][1:]) - int(entry.split(b"-")[0]) <= DEPUTY


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_passed_watch_is_somebodys_once_its_notification_was_taken(
    readers: list[Queue], world: World, is_taken: bool
) -> None:
    first, second, *_ = readers
    first.write("later", shard_key="t", delay=4)
    moment = told(first)
    pass_on(world, first, moment)
    if is_taken:
        assert world.raw.xreadgroup("shardq", "reader", {first.state.keys.notifications: ">"}, noack=True)
    assert told(second) == moment + (DEPUTY if is_taken else 0)


def test_what_comes_sooner_wakes_one_and_what_comes_later_none(readers: list[Queue], world: World) -> None:
    queue = readers[0]
    queue.write("later", shard_key="t", delay=3)
    assert told(queue) > 0
    before = woken(world, queue)
    write_later(queue, 9, 4)
    assert woken(world, queue) == before
    write_later(queue, 9, 2)
    assert woken(world, queue) == before + 1


def test_who_watched_and_is_gone_is_missed_by_nobody(
    readers: list[Queue], world: World, start_reader: StartReader
) -> None:
    queue = readers[0]
    write_later(queue, 1, 0.5)
    assert told(queue) > 0
    others = [start_reader(each) for each in readers[1:]]
    served(others, 1)
    queue.write_many([(number, "t") for number in range(2)])
    served(others, 3)


def test_what_time_brings_wakes_as_many_readers(readers: list[Queue], start_reader: StartReader) -> None:
    write_later(readers[0], 3, 0.5)
    others = [start_reader(each) for each in readers]
    served(others, 3)
    readers[0].write("the last one", shard_key="t")
    served(others, 4)


def pass_on(world: World, queue: Queue, moment: int) -> None:
    """As whoever watched does when it is handed a message."""
    set_odd(world.raw, queue.state.keys, watched=f"-{moment}")
    world.raw.xadd(queue.state.keys.notifications, {"s": f"@{moment}"})


def write_later(queue: Queue, number: int, delay: float) -> None:
    queue.write_many([Message(at, f"t{at}", delay=delay) for at in range(number)])


def served(readers: list[Reader], number: int) -> None:
    """Wait until so many of them have a message: sooner than they look for themselves."""
    eventually(lambda: sum(not each.found.empty() for each in readers) == number, what=f"{number} deliveries")
