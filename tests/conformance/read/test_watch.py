"""Of the readers that are blocked one watches for what time brings, and five deputies for it: the others sleep.

The queue's clock stands still until a test lets it go, so no moment is over before all have looked.
"""

from __future__ import annotations

import pytest

from shardq import Empty, Limits, Message, Queue
from shardq.ops.queue.retry import retry_until
from shardq.ops.read.command import ALL_DECLARED, ReadReply, read_call, read_reply
from shardq.ops.read.waiting import Outstanding, ReadRequest
from tests.conformance.clock import MOVED_TIME, TIME, QueueClock
from tests.conformance.conftest import OpenQueue
from tests.conformance.operate.test_limits_blocked import woken
from tests.conformance.read.test_blocking import SLICE, SOON, Reader, StartReader, blocked, patient, start_reader
from tests.conformance.world import World
from tests.conftest import Mutate
from tests.state import odd_of, set_odd
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("real", "patient")
__all__ = ["patient", "start_reader"]  # fixtures: a slice lasts a minute

LATEST = 250
"""ms after the moment by which somebody looks, whoever is gone."""
KNOWING = 6
"""So many readers know the moment."""
ROUND = 30
"""ms for which news goes round at most among those who know it."""
RATE = 0.8
"""Messages a second: a token comes later than the deputies look, and sooner than all do."""


@pytest.fixture
def readers(open_queue: OpenQueue, world: World, mutate: Mutate) -> list[Queue]:
    """The queue as four clients see it. Its clock stands still."""
    mutate("state", TIME, MOVED_TIME)
    queues = [open_queue(by=world.client(wait_slice=SLICE), streams=4, streams_per_shard=2) for _ in range(4)]
    assert [queue.read_many(1) for queue in queues] == [[]] * 4
    QueueClock(world.raw, queues[0]).stop()
    return queues


@pytest.fixture
def clock(readers: list[Queue], world: World) -> QueueClock:
    """The clock of the queue."""
    return QueueClock(world.raw, readers[0])


def look(queue: Queue, stays: float = 30.0) -> ReadReply:
    """What a reader finds that would wait for *stays* seconds: it says that, and goes away."""
    state = queue.state
    call = read_call(state, ReadRequest(1, 30.0, None), stays, Outstanding(), declare=ALL_DECLARED)
    reply = queue._client.run(retry_until(lambda _: call.call, state.until(), state.clock))
    return read_reply(state, call, reply)


def told(queue: Queue, stays: float = 30.0) -> int:
    """When a reader that found nothing is to look again, in ms of the server's clock; 0: it may sleep."""
    assert look(queue, stays).rows == []
    return max(0, queue.state.watch)


def test_of_many_a_few_look_one_after_the_other_and_the_rest_sleeps(
    readers: list[Queue], open_queue: OpenQueue, world: World
) -> None:
    """Whoever of these is gone, the next one looks within the promised time."""
    due = round(readers[0].stats().time * 1000) + 4000
    readers[0].write("later", shard_key="t", delay=4)
    more = [open_queue(by=world.client(wait_slice=SLICE)) for _ in range(4)]
    looks = [told(reader) for reader in readers + more]
    assert looks[KNOWING:] == [0, 0]
    assert looks[:KNOWING] == sorted({*looks[:KNOWING]})
    assert due <= looks[0]
    assert looks[KNOWING - 1] - looks[0] <= LATEST


def test_the_news_of_a_moment_goes_round_among_those_who_are_blocked_once(readers: list[Queue], world: World) -> None:
    first = readers[0]
    assert told(first) == 0
    before = woken(world, first)
    first.write("later", shard_key="t", delay=4)
    assert woken(world, first) == before + 1
    for number, reader in enumerate(readers, start=2):
        assert told(reader) > 0
        assert woken(world, first) == before + number, "the next one hears of it"
    assert told(first) > 0
    assert woken(world, first) == before + len(readers) + 1, "it knew"


def test_news_reaches_who_was_not_blocked_when_it_went_round(readers: list[Queue], world: World) -> None:
    """A reader that knows it is woken first, since it was blocked before that one."""
    first, second, *_ = readers
    first.write("later", shard_key="t", delay=4)
    assert all(told(reader) > 0 for reader in (first, second))
    first.write("sooner", shard_key="u", delay=2)
    assert told(first) > 0
    before = woken(world, first)
    assert told(first) > 0
    assert woken(world, first) == before + 1, "the other one has not heard of it"
    assert told(second) > 0
    assert told(first) > 0
    assert woken(world, first) == before + 2, "and now it has"


def test_news_reaches_who_watches_for_a_later_moment(readers: list[Queue], world: World) -> None:
    watching, *others = readers
    watching.write("later", shard_key="t", delay=4)
    assert told(watching) > 0
    watching.write("sooner", shard_key="u", delay=2)
    assert told(others[0]) > 0
    before = woken(world, watching)
    assert told(others[0]) > 0
    assert woken(world, watching) == before + 1


def test_who_watched_for_what_is_over_hands_on_what_it_hears(readers: list[Queue], world: World) -> None:
    watching = readers[0]
    assert [told(each) for each in readers] == [0] * 4
    watching.state.watch = round(watching.stats().time * 1000)
    watching.write("later", shard_key="t", delay=4)
    before = woken(world, watching)
    assert told(watching) > 0
    assert woken(world, watching) == before + 1


@pytest.mark.parametrize("ago", [ROUND, -5000])
def test_news_is_not_passed_on_for_ever_if_those_who_missed_it_are_gone(
    readers: list[Queue], world: World, ago: int
) -> None:
    """Also if the server's clock was set back since it began to go round."""
    first, gone, *_ = readers
    first.write("later", shard_key="t", delay=4)
    assert all(told(reader) > 0 for reader in (first, gone))
    first.write("sooner", shard_key="u", delay=2)
    since = int(odd_of(world.raw, first.state.keys)["handed"])
    assert told(first) > 0
    set_odd(world.raw, first.state.keys, handed=str(since - ago))
    before = woken(world, first)
    assert told(first) > 0
    assert woken(world, first) == before


def test_a_sooner_moment_is_news_to_those_who_watch_for_a_later_one(readers: list[Queue], world: World) -> None:
    first = readers[0]
    first.write("later", shard_key="t", delay=4)
    later = [told(reader) for reader in readers]
    before = woken(world, first)
    first.write("sooner", shard_key="u", delay=2)
    sooner = [told(reader) for reader in readers]
    assert woken(world, first) == before + 1 + len(readers)
    assert max(sooner) - min(sooner) <= LATEST
    assert max(sooner) < min(later)


def test_one_that_comes_back_while_others_watch_wakes_nobody(readers: list[Queue], world: World) -> None:
    """As each one does that has worked on a message."""
    for reader in readers[:2]:
        assert told(reader) == 0
    readers[0].write("later", shard_key="t", delay=4)
    for reader in (*readers[:2], readers[0]):
        assert told(reader) > 0
    before = woken(world, readers[0])
    assert told(readers[2]) > 0
    assert woken(world, readers[0]) == before


def test_who_looks_again_goes_on_watching(readers: list[Queue]) -> None:
    readers[0].write("later", shard_key="t", delay=4)
    before = [told(reader) for reader in readers]
    assert [told(reader) for reader in readers] == before


def test_who_does_not_stay_for_so_long_is_not_counted_on(readers: list[Queue]) -> None:
    due = round(readers[0].stats().time * 1000) + 4000
    readers[0].write("later", shard_key="t", delay=4)
    for reader in readers[:2]:
        told(reader, 0.5)
    assert 0 <= told(readers[2]) - due < LATEST


def test_who_leaves_before_a_moment_hands_it_to_who_stays(
    readers: list[Queue], world: World, clock: QueueClock, start_reader: StartReader
) -> None:
    """Both are blocked when it is written, and it wakes the one that leaves."""
    while not left_after_news(readers, world, clock, start_reader):
        pass  # the machine stood still: it left before that was written


def left_after_news(readers: list[Queue], world: World, clock: QueueClock, start_reader: StartReader) -> bool:
    """Whether the one that leaves was there when the message was written, which the other one gets."""
    leaving = Reader(readers[0], None, block=0.5)
    eventually(lambda: world.blocked(readers[0]) == 1 or not leaving.found.empty())
    staying = start_reader(readers[1])
    eventually(lambda: world.blocked(readers[0]) == 2 or not leaving.found.empty())
    readers[2].write("later", shard_key="t", delay=1)
    was_there = leaving.found.empty()
    assert isinstance(leaving.found.get(timeout=SOON), Empty)
    clock.go()
    assert staying.got().payload == "later"
    clock.stop()
    return was_there


def test_who_leaves_last_of_those_that_know_hands_the_moment_on(readers: list[Queue], world: World) -> None:
    first, *_ = readers
    first.write("later", shard_key="t", delay=4)
    told(first, 1.0)
    before = woken(world, first)
    told(first, 0.5)
    assert woken(world, first) == before, "it has handed it on"
    told(first, 0.01)
    assert woken(world, first) == before + 1


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


def test_who_is_handed_a_message_does_not_watch_any_more(readers: list[Queue]) -> None:
    """Else its next read would give back a watch that is another's by then."""
    watching = readers[0]
    watching.write("later", shard_key="t", delay=4)
    assert told(watching)
    watching.write("now", shard_key="u")
    assert watching.read_many(1)
    assert watching.state.watch == 0


def test_a_watch_that_was_passed_on_is_the_sleepers_who_takes_the_notification(
    readers: list[Queue], open_queue: OpenQueue, world: World, clock: QueueClock, start_reader: StartReader
) -> None:
    first, *others = readers
    others.append(open_queue(by=world.client(wait_slice=SLICE)))
    sleeper = open_queue(by=world.client(wait_slice=SLICE))
    first.write("later", shard_key="t", delay=1)
    moment = told(first)
    for each in others:
        assert told(each)
    reader = start_reader(sleeper)
    blocked(world, sleeper, 1)
    pass_on(world, first, moment)
    eventually(lambda: sleeper.state.watch == moment)
    assert told(others[-1]) != moment, "it is at most a deputy"
    clock.go()
    assert reader.got().payload == "later"


def test_a_watch_that_nobody_took_is_taken_by_who_asks_next(readers: list[Queue], clock: QueueClock) -> None:
    first, _, third, _ = readers
    first.write_many([(number, "t") for number in range(3)])
    first.set_limits({"t": Limits(rate=RATE, burst=1)})
    assert look(first).rows
    before = told(first)
    clock.advance(1 / RATE)
    assert look(first).rows
    assert told(third) - before == pytest.approx(1000 / RATE, abs=2)


def test_what_comes_within_the_deputies_time_is_told_with_the_wake_up(
    readers: list[Queue], world: World, clock: QueueClock
) -> None:
    first = readers[0]
    first.write_many([(number, "t") for number in range(9)])
    first.set_limits({"t": Limits(rate=5, burst=1)})
    assert look(first).rows
    assert told(first)
    clock.advance(0.2)
    assert look(first).rows
    [(_, fields)] = world.raw.xrevrange(first.state.keys.notifications, count=1)
    assert fields[b"s"].startswith(b"@")
    assert 0 < int(fields[b"s"][1:]) - clock.ms <= LATEST


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
    assert (told(second) == moment) == (not is_taken)


def test_who_passed_a_watch_on_to_a_deputy_has_a_turn_when_it_comes_back(
    readers: list[Queue], open_queue: OpenQueue, world: World
) -> None:
    """The deputy may be stopped, and the three others gone: then nobody else looks."""
    first, *others = readers
    others.append(open_queue(by=world.client(wait_slice=SLICE)))
    first.write("later", shard_key="t", delay=4)
    moment = told(first)
    assert all(told(each) > 0 for each in others)
    pass_on(world, first, moment)
    assert world.raw.xreadgroup("shardq", "reader", {first.state.keys.notifications: ">"}, noack=True)
    first.state.watch = 0
    assert 0 < told(first) - moment <= LATEST


def test_who_takes_a_watch_over_gives_back_the_turn_that_it_had(readers: list[Queue], world: World) -> None:
    first, deputy, *_ = readers
    first.write("later", shard_key="t", delay=4)
    moment = told(first)
    turn = told(deputy)
    reader = Reader(deputy, None, block=SOON)
    blocked(world, deputy, 1)
    pass_on(world, first, moment)
    eventually(lambda: deputy.state.watch == moment)
    assert deputy.state.turn == turn
    deputy.write("now", shard_key="u")
    assert reader.got().payload == "now"
    assert deputy.state.turn == 0
    assert told(first) == moment
    assert told(deputy) == turn, "nobody has it"


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
    readers: list[Queue], clock: QueueClock, start_reader: StartReader
) -> None:
    queue = readers[0]
    write_later(queue, 1, 0.5)
    assert told(queue) > 0
    clock.go()
    others = [start_reader(each) for each in readers[1:]]
    served(others, 1)
    queue.write_many([(number, "t") for number in range(2)])
    served(others, 3)


def test_what_time_brings_wakes_as_many_readers(
    readers: list[Queue], clock: QueueClock, start_reader: StartReader
) -> None:
    clock.go()
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
