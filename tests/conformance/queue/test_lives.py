"""A queue that was deleted and made anew is another one: it has another id, and what the first one had is not lost."""

from __future__ import annotations

from shardq import Queue
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World


def anew(open_queue: OpenQueue, queue: Queue, world: World, **settings: int) -> Queue:
    """Delete *queue*, and let another client make it anew."""
    queue.delete(expected=None)
    return open_queue(by=world.client(), streams=4, streams_per_shard=4, **settings)


def test_a_queue_keeps_its_id_for_all_of_its_life_and_a_new_one_has_another(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(streams=4, streams_per_shard=4)
    queue.write("1", shard_key="a")
    stats = queue.stats()
    assert int(stats.id.partition("-")[0]) <= stats.time * 1000
    queue.configure(journal=100)
    queue.resize(6)
    assert queue.stats().id == queue.journal().queue_id == stats.id
    other = anew(open_queue, queue, world)
    assert queue.stats().id == ""
    other.write("1", shard_key="a")
    assert other.stats().id not in ("", stats.id)
    assert queue.stats().id == other.stats().id


def test_the_events_of_an_earlier_life_are_not_lost(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=4, journal=100)
    queue.write_many([(str(n), "a") for n in range(5)])
    before = queue.journal()
    other = anew(open_queue, queue, world, journal=100)
    other.write("1", shard_key="a")
    page = other.journal(after=before.position)
    assert ([each.kind for each in page.events], page.lost) == (["written"], 0)
    assert page.queue_id == other.stats().id != before.queue_id
    other.write_many([(str(n), "a") for n in range(500)])
    for _ in range(20):
        other.write_many([(str(n), "a") for n in range(100)])
    late = other.journal(10_000, after=before.position)
    assert late.lost == late.latest - page.position + 1 - len(late.events) > 0


def test_a_journal_that_is_switched_on_before_the_first_message_lacks_nothing(
    open_queue: OpenQueue,
) -> None:
    queue = open_queue(streams=4, streams_per_shard=4)
    assert queue.read_many(1) == []
    queue.configure(journal=100)
    queue.write("1", shard_key="a")
    page = queue.journal()
    assert ([each.kind for each in page.events], page.lost) == (["configured", "written"], 0)
    queue.configure(journal=0)
    queue.configure(journal=100)
    assert queue.journal(after=page.position).lost == 1
