"""len and stats are true at every step: equal to a count of the raw keys, message by message."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import asdict

from shardq import Client, Limits, Message, Queue
from shardq.model import MessageId
from shardq.model.stats import COUNTS
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.surface import differences
from tests.waiting import eventually


def check(queue: Queue, world: World, *, backlog: int, in_flight: int = 0, delayed: int = 0, dead: int = 0) -> None:
    """What the queue says is what was expected, and what is there."""
    stats, census = queue.stats(), world.census(queue)
    assert (stats.backlog, stats.in_flight, stats.delayed, stats.dead) == (backlog, in_flight, delayed, dead)
    assert (census.backlog, census.in_flight, census.not_due, census.dead) == (backlog, in_flight, delayed, dead)
    assert queue.len() == backlog + in_flight
    assert stats.streams == tuple(census.per_stream[number] for number in range(len(stats.streams)))
    assert census.problems() == []


@pytest.mark.everywhere
def test_the_numbers_are_true_at_every_step(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, max_deliveries=2)
    ids = queue.write_many([(number, f"t{number}") for number in range(10)])
    check(queue, world, backlog=10)
    later = queue.write("later", shard_key="t", delay=100)
    check(queue, world, backlog=10, delayed=1)
    held = queue.read_many(6)
    check(queue, world, backlog=4, in_flight=6, delayed=1)
    held[5].ack()  # out of order
    check(queue, world, backlog=4, in_flight=5, delayed=1)
    held[0].nack()
    check(queue, world, backlog=5, in_flight=4, delayed=1)
    held[1].nack(delay=50)
    check(queue, world, backlog=5, in_flight=3, delayed=2)
    held[2].reject("no")
    check(queue, world, backlog=5, in_flight=2, delayed=2, dead=1)
    held[3].extend(1000)
    check(queue, world, backlog=5, in_flight=2, delayed=2, dead=1)
    queue.cancel(later)
    check(queue, world, backlog=5, in_flight=2, delayed=1, dead=1)
    waiting = next(each for each in ids if each not in {delivery.message_id for delivery in held})
    queue.cancel(waiting)
    check(queue, world, backlog=4, in_flight=2, delayed=1, dead=1)
    queue.cancel(held[4].message_id)
    check(queue, world, backlog=4, in_flight=2, delayed=1, dead=1)  # its holder works on it still
    world.elapse(queue, 50)  # ends held[4], which is gone with that, lets held[1] in; nobody looked yet
    check_numbers(queue, backlog=5, in_flight=1)
    again = queue.read_many(100)
    check(queue, world, backlog=0, in_flight=len(again) + 1, dead=1)
    for delivery in again:
        delivery.nack()
    redelivered = sum(1 for delivery in again if delivery.count == 2)
    check(queue, world, backlog=len(again) - redelivered, in_flight=1, dead=1 + redelivered)
    queue.redrive(queue.dead())
    check(queue, world, backlog=len(again) + 1, in_flight=1)
    queue.purge()
    check(queue, world, backlog=0, in_flight=1)
    held[3].ack()
    check(queue, world, backlog=0)


def test_those_that_wait_for_their_next_try_are_counted_among_the_delayed(open_queue: OpenQueue, world: World) -> None:
    """In whichever way they leave it. One that was given back uncounted was not tried."""
    queue = open_queue(streams=2, max_deliveries=5)

    def retrying() -> tuple[int, int]:
        stats = queue.stats()
        return stats.delayed, stats.retrying

    queue.write_many([Message(number, f"t{number}", delay=1000) for number in range(3)])
    ids = queue.write_many([(number, f"t{number}") for number in range(6)])
    assert retrying() == (3, 0)
    found = {each.message_id: each for each in queue.read_many(6)}
    tried, others = [found[each] for each in ids[:4]], [found[each] for each in ids[4:]]
    queue.nack_many(tried, delay=[10, 500, 500, 500])
    queue.nack_many(others, delay=[500, 500], error=["unknown"] * 2, counted=False)
    assert retrying() == (9, 4)
    world.elapse(queue, 10)
    assert queue.stats().runnable == 1
    (again,) = queue.read_many(10)
    assert (again.message_id, again.count, retrying()) == (ids[0], 2, (8, 3))
    again.nack(delay=500)
    assert retrying() == (9, 4)
    queue.cancel(ids[1])
    queue.cancel(ids[4])
    assert retrying() == (7, 3)
    queue.purge()
    assert retrying() == (0, 0)


def check_numbers(queue: Queue, *, backlog: int, in_flight: int) -> None:
    """As `check`, while the index of leases is not swept yet."""
    stats = queue.stats()
    assert (stats.backlog, stats.in_flight, queue.len()) == (backlog, in_flight, backlog + in_flight)


OF_NOW = {
    "due_soon": "tests/conformance/inspect/test_stats.py",
    "held_back": "tests/conformance/read/test_fairness.py",
    "legacy": "tests/conformance/read/test_legacy.py",
    "limited": "tests/conformance/operate/test_limits.py",
    "runnable": "tests/conformance/operate/test_limits.py",
    "tenants_waiting": "tests/conformance/read/test_service_time.py",
    "wanted": "tests/conformance/queue/test_resize.py",
}
"""Numbers that tell what is now, and where these are shown."""


def test_each_counter_says_how_messages_went(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=1, window=0, max_dead=1, drop_dead=1, result_ttl=60, max_result_size=50)
    ids = queue.write_many([(number, "t") for number in range(10)])
    queue.cancel(ids[0])
    queue.cancel(ids[1])
    first, second, *rest = queue.read_many(5)
    queue.ack_many([first, second], results=["small", "large" * 50])
    for each in rest:  # one dead letter at most is kept
        each.reject("no")
    queue.delete_dead(queue.dead())
    queue.read().nack(delay=600)
    lost = queue.write("lost", shard_key="t")
    world.raw.xdel(queue.state.keys.stream(0), lost.rpartition("-")[0])
    late = int(queue.write("late", shard_key="t", deadline=0.001).partition("-")[0])
    eventually(lambda: world.census(queue).now > late + 1)
    assert [each.payload for each in queue.read_many(10)] == [8, 9]
    assert queue.purge() == 1
    counted = {
        "written": 12, "acked": 2, "cancelled": 2, "dead_lettered": 3, "dead_dropped": 2, "dead_deleted": 1,
        "vanished": 1, "expired": 1, "purged": 1, "retrying": 0, "result_count": 2, "results_refused": 1,
        "delivered": 8, "redelivered": 0, "failed": 3,
    }  # fmt: skip
    stats = asdict(queue.stats())
    assert {name: stats[name] for name in counted} == counted
    assert differences([*counted, "result_bytes"], COUNTS, OF_NOW) == []
    assert stats["result_bytes"] > 400


def test_a_queue_that_does_not_exist_is_empty_and_stays_so(queue: Queue, world: World) -> None:
    stats = queue.stats()
    assert (queue.len(), stats.backlog, stats.oldest_age, stats.streams, queue.dead()) == (0, 0, None, (), [])
    assert stats.time > 1_000_000_000
    assert world.stored() == set()


def test_the_oldest_age_is_that_of_the_oldest_undelivered_message(queue: Queue, world: World) -> None:
    assert queue.read_many(1) == []
    assert queue.stats().oldest_age is None
    ids = [queue.write(number, shard_key="t") for number in range(6)]

    def oldest() -> int:
        stats = queue.stats()
        assert stats.oldest_age is not None
        return round((stats.time - stats.oldest_age) * 1000)

    assert oldest() == MessageId.parse(ids[0]).written_ms
    held = queue.read_many(3)
    left = [each for each in ids if each not in {delivery.message_id for delivery in held}]
    assert oldest() == min(MessageId.parse(each).written_ms for each in left)
    before = queue.stats().time
    world.elapse(queue, 60)  # the oldest ones wait again, though nobody took them back yet: since their leases ended
    assert oldest() < before * 1000 - 20_000
    queue.ack_many(queue.read_many(9))
    assert queue.stats().oldest_age is None


def ages(queue: Queue) -> tuple[float, float]:
    """For how long the only message has waited: by the queue's numbers, then by its delivery."""
    told = queue.stats().oldest_age
    assert told is not None
    found = queue.read_many(9)
    assert len(found) == 1
    return told, found[0].pickup_delay


@pytest.mark.parametrize("settings", [{"window": 0}, {"window": 1}, {"window": 1, "max_in_flight": 1}], ids=str)
def test_a_message_waits_from_when_it_is_due(open_queue: OpenQueue, world: World, settings: dict[str, int]) -> None:
    queue = open_queue(**settings)
    queue.write("ahead", shard_key="t", delay=3600)
    world.elapse(queue, 3000)
    assert queue.stats().oldest_age is None
    world.elapse(queue, 610)  # due for 10 s, and nobody let it in yet
    told, delay = ages(queue)
    assert 10 <= told < 1000
    assert delay < 1000


def test_what_was_held_back_after_its_delay_waits_from_when_it_was_due(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=1, window=1, max_in_flight=1)
    queue.write("first", shard_key="t")
    queue.read(visibility_timeout=86_400)
    queue.write("ahead", shard_key="t", delay=3600)
    world.elapse(queue, 3600)
    assert queue.read_many(9) == []  # it was due, and there is no room for it
    stats = queue.stats()
    assert (stats.backlog, stats.limited, stats.oldest_age) == (1, 1, None), "it could not be delivered"
    queue.configure(max_in_flight=0)
    told = queue.stats().oldest_age
    assert told is not None
    assert told < 1000


def test_nothing_has_waited_while_the_whole_queue_is_paused(queue: Queue) -> None:
    queue.write("work", shard_key="t")
    assert queue.stats().oldest_age is not None
    queue.pause(seconds=60)
    queue.write("more", shard_key="t")
    stats = queue.stats()
    assert (stats.backlog, stats.runnable, stats.limited) == (2, 0, 0)
    assert (stats.oldest_age, stats.oldest_age_is_sampled) == (None, False), "none of it could be delivered"
    queue.resume()
    assert queue.stats().oldest_age is not None


def test_a_message_that_was_given_back_waits_since_then(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(window=0)
    queue.write("work", shard_key="t", delay=3600)
    world.elapse(queue, 3601)
    queue.read().nack()
    assert all(age < 1000 for age in ages(queue))


def test_a_message_that_was_given_back_with_a_delay_waits_since_that_is_over(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(window=0)
    queue.write("work", shard_key="t")
    queue.read().nack(delay=3600)
    assert queue.stats().oldest_age is None
    world.elapse(queue, 3610)
    told, delay = ages(queue)
    assert 10 <= told < 1000
    assert delay < 1000


def test_a_message_whose_lease_ended_waits_since_then(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(window=0)
    queue.write("work", shard_key="t")
    queue.read(visibility_timeout=3600)
    world.elapse(queue, 3610)
    told, delay = ages(queue)
    assert 10 <= told < 1000
    assert 10 <= delay < 1000


def test_a_client_that_never_read_or_wrote_sees_the_same(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=6)
    queue.write_many([(number, "t") for number in range(5)])
    queue.read()
    other = open_queue(by=world.client())
    stats = other.stats()
    assert (other.len(), stats.backlog, stats.in_flight, len(stats.streams)) == (5, 4, 1, 6)


def test_a_client_with_an_old_idea_of_the_streams_sees_them_all(open_queue: OpenQueue, world: World) -> None:
    queue, other = open_queue(streams=2), open_queue(by=world.client())
    queue.write(1, shard_key="t")
    assert other.stats().streams in ((1, 0), (0, 1))
    queue.resize(9)
    queue.write_many([(number, f"t{number}") for number in range(50)])
    stats = other.stats()
    assert (len(stats.streams), sum(stats.streams), stats.backlog) == (9, 51, 51)


@pytest.mark.everywhere
def test_purging_removes_all_that_waits_and_nothing_else(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, max_deliveries=2)
    queue.write_many([(number, f"t{number}") for number in range(1000)])
    queue.write("later", shard_key="t", delay=100)
    held = queue.read_many(3)
    held[0].nack()
    held[1].reject("dead")
    assert queue.purge() == 997 + 1 + 1
    check(queue, world, backlog=0, in_flight=1, dead=1)
    held[2].ack()
    assert queue.stats().acked == 1
    assert queue.purge() == 0
    queue.write("new", shard_key="t")
    assert [each.payload for each in queue.read_many(9)] == ["new"]


def test_purging_with_an_old_idea_of_the_streams_leaves_nothing_behind(open_queue: OpenQueue, world: World) -> None:
    queue, other = open_queue(streams=2), open_queue(by=world.client())
    queue.write(1, shard_key="t")
    assert other.len() + other.stats().backlog == 2
    queue.resize(9)
    queue.write_many([(number, f"t{number}") for number in range(50)])
    assert other.purge() == 51
    check(queue, world, backlog=0)


def test_queues_do_not_see_one_another(client: Client, queue_name: str) -> None:
    first, second = client.queue(queue_name, streams=2), client.queue(queue_name + "0", streams=2)
    first.write(1, shard_key="t")
    assert (first.len(), second.len()) == (1, 0)
    second.write(1, shard_key="t")
    assert first.purge() == 1
    assert second.len() == 1


def test_a_purge_removes_all_of_floods_beside_many_tenants(open_queue: OpenQueue, world: World) -> None:
    """It goes on over several calls, and leaves no shard key half done."""
    queue = open_queue(streams=64, streams_per_shard=4, window=1)
    floods = [(number, f"flood-{number % 3}") for number in range(3000)]
    queue.write_many([*floods, *[(number, f"t{number // 2}") for number in range(600)]])
    assert queue.purge() == 3600
    assert (queue.len(), queue.read_many(9), world.census(queue).problems()) == (0, [], [])
    assert world.raw.hlen(queue.state.keys.bodies) == 1, "nothing is left but the sentinel"


def test_deliveries_are_counted_and_those_that_came_again(open_queue: OpenQueue, world: World) -> None:
    """However a message comes again; one that was given back uncounted was not delivered before."""
    queue = open_queue(streams=4, max_deliveries=10)
    queue.write_many([(number, f"t{number % 3}") for number in range(12)])

    def counted() -> tuple[int, int]:
        stats = queue.stats()
        return stats.delivered, stats.redelivered

    assert counted() == (0, 0)
    held = queue.read_many(5)
    assert counted() == (5, 0)
    queue.read()
    assert counted() == (6, 0)
    queue.nack_many(held[:2])
    queue.nack_many(held[2:3], error="too early", counted=False)
    assert len(queue.read_many(9)) == 9
    assert counted() == (15, 2)
    world.elapse(queue, 100)  # all leases end
    assert len(queue.read_many(20)) == 12
    assert counted() == (27, 14)
    queue.resize(2)
    assert queue.stats().delivered == 27


def test_the_count_of_deliveries_outlives_all_that_is_delivered(open_queue: OpenQueue) -> None:
    """It stands beside the number of the stream that is next, also where streams go."""
    queue = open_queue(streams=16, streams_per_shard=2)
    for number in range(50):
        queue.write(number, shard_key=f"t{number}")
        queue.read().ack()
    assert queue.stats().delivered == 50
    queue.resize(1)
    queue.state.shrink_at = 0.0
    queue.write("last", shard_key="t")
    queue.read().ack()
    queue.read_many(1)
    assert (queue.stats().delivered, len(queue.stats().streams)) == (51, 1)


def test_it_says_when_the_next_message_comes_due_and_how_many_do_within_a_minute(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(streams=4)
    assert (queue.stats().next_due, queue.stats().due_soon) == (None, 0)
    began = queue.stats().time
    first = queue.write("later", shard_key="t", delay=3600)
    stats = queue.stats()
    assert began + 3600 <= (stats.next_due or 0) <= stats.time + 3600
    assert (stats.delayed, stats.due_soon) == (1, 0)
    for key in ("t", "u"):
        queue.write_many([Message(number, key, delay=30 + number / 1000) for number in range(20)])
    queue.set_limits({"v": Limits(rate=0.001, burst=1)})
    queue.write_many([(number, "v") for number in range(2)])
    queue.read_many(9)  # its next token comes in 1,000 s
    stats = queue.stats()
    assert (stats.due_soon, stats.delayed) == (40, 41)
    assert began + 30 <= (stats.next_due or 0) <= stats.time + 30
    world.elapse(queue, 31)  # they come due, and nobody looks
    stats = queue.stats()
    assert (stats.due_soon, stats.delayed) == (0, 1)
    assert (stats.next_due or 0) > stats.time + 3000
    queue.cancel(first)
    assert queue.stats().next_due is None


def test_of_very_many_shard_keys_it_estimates_how_many_come_due_soon(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4)
    queue.write_many([Message(number, f"t{number}", delay=30) for number in range(1000)])
    queue.write_many([Message(number, f"u{number}", delay=90) for number in range(1000)])
    stats = queue.stats()
    assert stats.due_soon == 1000
    assert stats.next_due is not None
    assert stats.time < stats.next_due <= stats.time + 30


def test_children_that_wait_are_no_messages_that_come_due(open_queue: OpenQueue) -> None:
    """Their order stands behind the delayed messages."""
    queue = open_queue(streams=4, parents=1)
    queue.write_many([(number, f"acct/{child}") for number in range(9) for child in "abc"])
    queue.read_many(5)
    assert (queue.stats().next_due, queue.stats().due_soon, queue.stats().delayed) == (None, 0, 0)
    queue.write("late", shard_key="acct/a", delay=30)
    assert (queue.stats().due_soon, queue.stats().delayed) == (1, 1)


def test_it_says_that_the_queue_is_paused(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4)
    queue.declare()
    queue.pause("t")
    assert queue.stats().paused_until is None, "one shard key is no queue"
    queue.pause(seconds=600, by="jonas", note="the database is away")
    stats = queue.stats()
    assert stats.time < (stats.paused_until or 0) <= stats.time + 600
    assert (stats.paused_by, stats.paused_note) == ("jonas", "the database is away")
    assert stats.time - 60 <= (stats.paused_since or 0) <= stats.time
    queue.pause()
    assert (queue.stats().paused_until, queue.stats().paused_by) == (math.inf, queue.client.name)
    queue.resume()
    assert (queue.stats().paused_until, queue.stats().paused_by) == (None, "")
