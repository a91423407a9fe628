"""Time passes and nobody reads: every other verb, and every figure, tells of the moment and not of the last read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardq import Limits, Message, MessageNotFound, Queue
from shardq.model import MessageId
from shardq.model.message import OnConflict
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

LASTS = 20
LATER = 30
MODES: tuple[OnConflict, ...] = ("existing", "raise", "replace")


def leased(queue: Queue, world: World, count: int = 1) -> None:
    """So many messages are read, and the leases end."""
    assert len(queue.read_many(count, visibility_timeout=LASTS)) == count
    world.elapse(queue, LATER)


def sound(queue: Queue, world: World) -> None:
    assert world.census(queue).problems() == []


# --- verbs that meet one message


@pytest.mark.parametrize("unique", [None, "doc"])
def test_a_cancel_removes_a_message_whose_lease_has_ended(queue: Queue, world: World, unique: str | None) -> None:
    message_id = queue.write("work", shard_key="t", unique_key=unique)
    leased(queue, world)
    assert queue.cancel(message_id) == "removed"
    assert queue.status(message_id).state == "unknown"
    stats = queue.stats()
    assert (stats.backlog, stats.in_flight, stats.cancelled, queue.read_many(9)) == (0, 0, 1, [])
    with pytest.raises(MessageNotFound):
        queue.cancel(message_id)
    if unique:
        assert queue.write("again", shard_key="t", unique_key=unique).is_new
    sound(queue, world)


@pytest.mark.parametrize("unique", [None, "doc"])
def test_what_was_cancelled_in_flight_is_gone_when_its_lease_ends(
    queue: Queue, world: World, unique: str | None
) -> None:
    message_id = queue.write("work", shard_key="t", unique_key=unique)
    queue.read(visibility_timeout=LASTS)
    assert queue.cancel(message_id) == "in flight"
    assert (queue.stats().in_flight, queue.len()) == (1, 1)
    world.elapse(queue, LATER)
    stats = queue.stats()
    told = (stats.backlog, stats.in_flight, stats.runnable, stats.oldest_age, stats.cancelled, stats.acked)
    assert told == (0, 0, 0, None, 1, 0)
    assert queue.len() == 0
    assert queue.status(message_id).state == "unknown"
    with pytest.raises(MessageNotFound):
        queue.cancel(message_id)
    sound(queue, world)


@pytest.mark.parametrize("delay", [None, 0.0, 60.0])
def test_a_message_whose_lease_has_ended_is_replaced(queue: Queue, world: World, delay: float | None) -> None:
    message_id = queue.write("old", shard_key="t", unique_key="doc")
    leased(queue, world)
    for payload in ("newer", "new"):
        again = queue.write(payload, shard_key="t", unique_key="doc", on_conflict="replace", delay=delay)
        assert (again, again.is_new) == (message_id, False)
    assert queue.status(message_id).state == ("delayed" if delay else "waiting")
    world.elapse(queue, 120)
    found = queue.read_many(9)
    assert [(each.payload, each.message_id, each.count) for each in found] == [("new", message_id, 2)]
    sound(queue, world)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_batch", [False, True], ids=["alone", "in a batch"])
def test_a_message_that_had_its_last_delivery_keeps_nobody_from_writing(
    open_queue: OpenQueue, world: World, mode: OnConflict, is_batch: bool
) -> None:
    queue = open_queue(max_deliveries=2)
    first = queue.write("old", shard_key="t", unique_key="doc")
    for _ in range(2):
        leased(queue, world)
    assert queue.status(first).reason == "max_deliveries"
    if is_batch:
        [second] = queue.write_many([Message("new", "t", unique_key="doc", on_conflict=mode)])
    else:
        second = queue.write("new", shard_key="t", unique_key="doc", on_conflict=mode)
    assert second.is_new
    assert [each.payload for each in queue.read_many(9)] == ["new"]
    assert [letter.message_id for letter in queue.dead()] == [first]
    assert not queue.write("newer", shard_key="t", unique_key="doc").is_new
    sound(queue, world)


@pytest.mark.parametrize("mode", MODES)
def test_a_message_whose_delivery_became_its_last_keeps_nobody_from_writing(
    open_queue: OpenQueue, world: World, mode: OnConflict
) -> None:
    """`max_deliveries` is lowered while it is in flight."""
    queue = open_queue(max_deliveries=3)
    first = queue.write("old", shard_key="t", unique_key="doc")
    leased(queue, world)
    assert len(queue.read_many(9)) == 1
    queue.configure(max_deliveries=2)
    world.elapse(queue, 120)
    assert queue.status(first).reason == "max_deliveries"
    assert queue.write("new", shard_key="t", unique_key="doc", on_conflict=mode).is_new
    assert [each.payload for each in queue.read_many(9)] == ["new"]
    assert [letter.message_id for letter in queue.dead()] == [first]
    sound(queue, world)


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "unique keys"])
def test_a_purge_takes_what_leases_gave_back(queue: Queue, world: World, keyed: bool) -> None:
    for number in range(300):
        queue.write(number, shard_key="t", unique_key=str(number) if keyed else None)
    queue.write("later", shard_key="t", delay=LATER)
    leased(queue, world, 290)
    held = queue.read(visibility_timeout=600)
    assert queue.purge() == 300
    stats = queue.stats()
    assert (stats.backlog, stats.in_flight, stats.delayed, stats.purged) == (0, 1, 0, 300)
    held.ack()
    assert queue.read_many(9) == []
    assert queue.stats().acked == 1
    sound(queue, world)


# --- figures


def late_due(queue: Queue, world: World) -> None:
    queue.write("due", shard_key="t", delay=LASTS)
    world.elapse(queue, LATER)


def ended_lease(queue: Queue, world: World) -> None:
    queue.write("again", shard_key="t")
    leased(queue, world)


def delayed_nack(queue: Queue, world: World) -> None:
    queue.write("again", shard_key="t")
    queue.read().nack(delay=LASTS)
    world.elapse(queue, LATER)


@pytest.mark.parametrize("come", [late_due, ended_lease, delayed_nack])
@pytest.mark.parametrize("settings", [{"window": 1}, {"window": 1, "parents": 1}, {"window": 1, "max_in_flight": 1}],
                         ids=str)  # fmt: skip
def test_a_tenant_has_what_time_brought_it(
    open_queue: OpenQueue, world: World, come: Callable[[Queue, World], None], settings: dict[str, int]
) -> None:
    queue = open_queue(**settings)
    come(queue, world)
    stats = queue.stats()
    assert (stats.backlog, stats.in_flight, stats.delayed, stats.runnable, stats.held_back) == (1, 0, 0, 1, 1)
    assert (stats.limited, stats.tenants_waiting, stats.retrying, queue.len()) == (0, 1, 0, 1)
    for tenant in (queue.tenant("t"), *queue.tenants(), *queue.tenants("oldest")):
        assert (tenant.backlog, tenant.in_flight, tenant.delayed, tenant.limited) == (1, 0, 0, 0)
        assert tenant.oldest_age == pytest.approx(stats.oldest_age, abs=5)
        assert LATER - LASTS <= (tenant.oldest_age or 0) < 1000
    assert queue.tenants("backlog")[0].shard_key == "t"


def test_what_is_not_yet_due_is_not_runnable_whatever_changed(open_queue: OpenQueue) -> None:
    queue = open_queue(window=1)
    queue.write(1, shard_key="t", delay=3600)
    queue.configure(max_in_flight=5)
    assert (queue.stats().backlog, queue.stats().runnable) == (0, 0)
    queue.pause("t")
    queue.resume("t")
    queue.set_limits({"t": Limits(rate=1)})
    queue.set_limits({"t": Limits()})
    assert (queue.stats().backlog, queue.stats().runnable) == (0, 0)


def test_who_waits_behind_what_was_given_back_counts_for_the_age(open_queue: OpenQueue) -> None:
    """The first of a line was given back a moment ago, the others have waited all the time."""
    queue = open_queue(window=1, max_deliveries=1000)
    ids = queue.write_many([(number, "t") for number in range(5)])
    queue.read(visibility_timeout=600).nack()
    stats = queue.stats()
    assert stats.oldest_age is not None
    assert round((stats.time - stats.oldest_age) * 1000) == MessageId.parse(ids[0]).written_ms
    assert not stats.oldest_age_is_sampled
    for tenant in (queue.tenant("t"), queue.tenants("oldest")[0]):
        assert tenant.oldest_age == pytest.approx(stats.oldest_age, abs=5)


def test_an_age_of_more_than_one_look_says_so(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=1, streams_per_shard=1, window=1)
    queue.write_many([(number, f"t{tenant}") for tenant in range(20) for number in range(2)])
    queue.read_many(20, visibility_timeout=600)
    assert not queue.stats().oldest_age_is_sampled
    queue.write_many([(number, f"u{tenant}") for tenant in range(300) for number in range(2)])
    queue.read_many(300, visibility_timeout=600)
    assert queue.stats().oldest_age_is_sampled
