"""What operators ask of a queue with partitions, and what they do with it: together it is what one queue would say."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import ConfigError, Limits, MessageNotFound, PartlyDone, Queue, QueueMissing, QueueNotEmpty, Where
from shardq.ops.queue.steps import Op
from shardq.partitions import ways
from shardq.partitions.homes import home
from shardq.protocol.ids import split
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

PARTITIONS = 3
TENANTS = {home(f"tenant-{number}", PARTITIONS): f"tenant-{number}" for number in range(20)}


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """The test's queue, with partitions."""
    queue = open_queue(partitions=PARTITIONS, streams=8, streams_per_shard=2)
    queue.declare()
    return queue


def dead_of_all(queue: Queue, each: int = 2) -> list[str]:
    """Put dead letters into each partition. Return their ids, those of one partition after the other."""
    ids: list[str] = []
    for number in range(PARTITIONS):
        ids += [queue.write({"n": n}, shard_key=TENANTS[number]) for n in range(each)]
    queue.reject_many(queue.read_many(100), "bad")
    return ids


def test_dead_letters_are_listed_on_from_where_a_page_ended(queue: Queue) -> None:
    ids = dead_of_all(queue)
    found: list[Any] = []
    while page := queue.dead(3, after=found[-1].entry_id if found else "-"):
        found += page
    assert [each.message_id for each in found] == ids
    assert [each.payload for each in found] == [{"n": 0}, {"n": 1}] * PARTITIONS


def test_dead_letters_are_redriven_and_deleted_wherever_they_are(queue: Queue) -> None:
    ids = dead_of_all(queue)
    letters = queue.dead()
    assert queue.redrive(letters[::2]) == PARTITIONS
    assert queue.delete_dead(ids=ids[1:2]) == 1
    assert queue.delete_dead(letters) == PARTITIONS - 1
    assert (queue.stats().dead, queue.len()) == (0, PARTITIONS)
    assert sorted(each.message_id for each in queue.read_many(9)) == sorted(ids[::2])
    with pytest.raises(ConfigError, match="say which dead letters"):
        queue.delete_dead()


def test_a_look_at_messages_goes_from_page_to_page_over_all_partitions(queue: Queue) -> None:
    ids = [queue.write({"n": n}, shard_key=TENANTS[number]) for number in range(PARTITIONS) for n in range(4)]
    seen: list[Any] = []
    page = queue.peek(5, payloads=True)
    while True:
        seen += page.messages
        assert len(page.messages) <= 5
        if page.cursor is None:
            break
        page = queue.peek(5, payloads=True, after=page.cursor)
    assert [each.message_id for each in seen] == ids
    assert [each.payload["n"] for each in seen] == [*range(4)] * PARTITIONS
    assert {each.shard_key for each in queue.peek(99, shard_key=TENANTS[2]).messages} == {TENANTS[2]}
    with pytest.raises(ConfigError, match="cursor"):
        queue.peek(5, after="what")


def test_what_is_said_of_a_message_has_the_id_that_was_asked_for(queue: Queue) -> None:
    for number, tenant in TENANTS.items():
        message_id = queue.write("x", shard_key=tenant)
        assert split(message_id)[1] == number
        assert queue.status(message_id).message_id == message_id
    with pytest.raises(MessageNotFound):
        queue.cancel(f"{split(message_id)[0]}@{(number + 1) % PARTITIONS or 2}")


def test_tenants_of_all_partitions_come_in_one_order(queue: Queue) -> None:
    for number, tenant in TENANTS.items():
        queue.write_many([("x", tenant)] * (number + 1))
    found = queue.tenants()
    assert [(each.shard_key, each.backlog) for each in found] == [(TENANTS[2], 3), (TENANTS[1], 2), (TENANTS[0], 1)]
    assert [each.shard_key for each in queue.tenants(start=1, limit=1)] == [TENANTS[1]]
    assert {each.shard_key for each in queue.tenants("oldest")} == {*TENANTS.values()}
    assert queue.tenant(TENANTS[1]).backlog == 2


def test_what_fails_is_counted_together(queue: Queue) -> None:
    queue.write_many([("x", tenant) for tenant in TENANTS.values() for _ in range(2)])
    queue.nack_many(queue.read_many(4), error=["slow"] * 4)
    last = queue.read_many(1)
    queue.nack_many(last, error="slow")
    (failure,) = queue.failures()
    assert (failure.retried, failure.recent, sum(failure.minutes)) == (5, 5, 5)
    assert split(failure.newest)[1] in range(PARTITIONS)
    assert set(failure.tenants) <= {*TENANTS.values()}


def test_an_action_works_in_all_partitions_under_one_id(queue: Queue) -> None:
    dead_of_all(queue, each=4)
    action = queue.redrive(Where(state="dead"), by="ops")
    assert [(each.id, each.state, each.by) for each in queue.actions()] == [(action.id, "running", "ops")]
    with pytest.raises(ConfigError, match="one runs at a time"):
        queue.delete_dead(Where(state="dead"))
    done = action.wait()
    assert (done.state, done.done, done.left, action.done, action.left) == ("done", 12, 0, 12, 0)
    assert queue.len() == 12
    assert [each.state for each in queue.actions()] == ["done"]


@pytest.mark.parametrize(("limit", "done"), [(1, 1), (5, 5), (12, 12), (100, 12)])
def test_an_action_is_about_no_more_than_its_limit(queue: Queue, limit: int, done: int) -> None:
    """However the messages are spread: of those that the head has, the others get the rest."""
    dead_of_all(queue, each=4)
    status = queue.redrive(Where(state="dead"), limit=limit).wait()
    assert (status.state, status.done, status.limit) == ("done", done, done)
    assert (queue.len(), queue.stats().dead) == (done, 12 - done)
    with pytest.raises(ConfigError, match="limit"):
        queue.redrive(Where(state="dead"), limit=0)


def test_an_action_may_find_nothing_in_the_head(queue: Queue) -> None:
    queue.write_many([(n, TENANTS[2]) for n in range(4)])
    assert queue.cancel(Where(state="waiting"), limit=3).wait().done == 3
    assert queue.len() == 1


def test_an_action_is_stopped_and_taken_over(queue: Queue) -> None:
    queue.write_many([("x", tenant) for tenant in TENANTS.values()])
    action = queue.cancel(Where(state="waiting"))
    assert queue.stop_action(action.id).state == "stopping"
    assert action.wait().state == "stopped"
    assert queue.take_over(action.id).wait().state == "done"
    assert queue.len() == 0
    with pytest.raises(ConfigError, match="knows no action"):
        queue.stop_action("none")


def test_shards_that_are_stored_count_in_all_partitions(queue: Queue) -> None:
    assigned = queue.assign(iter([*TENANTS.values()]))
    assert all(tenant in assigned for tenant in TENANTS.values())
    for tenant in TENANTS.values():
        assert queue.tenant(tenant).streams == assigned[tenant]
    assert len(queue.unassign()) == len(queue.assignment()) == 0


def test_streams_limits_and_plans_are_those_of_each_partition(queue: Queue) -> None:
    assert queue.resize(4) == (4, 4)
    queue.set_plan("gold", weight=3, by="ops")
    queue.set_limits(dict.fromkeys(TENANTS.values(), "gold"), note="why")
    assert queue.limits() == dict.fromkeys(TENANTS.values(), "gold")
    for tenant in TENANTS.values():
        assert (queue.tenant(tenant).plan, queue.tenant(tenant).weight) == ("gold", 3)
    assert queue.controls().limits[TENANTS[1]].note == "why"
    queue.set_limits(dict.fromkeys(TENANTS.values(), Limits()))
    queue.delete_plan("gold")
    assert queue.plans() == {}


@pytest.mark.once
def test_what_cannot_be_changed_is_refused(queue: Queue) -> None:
    changes: list[dict[str, Any]] = [{"parents": 1}, {"max_len": 2}, {"ttl": 60.0}]
    for change in changes:
        with pytest.raises(ConfigError, match=next(iter(change))):
            queue.configure(**change)
    assert queue.configure(max_deliveries=3).max_deliveries == 3


def test_a_queue_that_is_not_there_is_made_by_no_question(world: World, queue_name: str) -> None:
    queue = world.client().queue(queue_name, partitions=PARTITIONS)
    assert (queue.len(), queue.stats().backlog, queue.dead()) == (0, 0, [])
    with pytest.raises(QueueMissing):
        queue.set_limits({"a": Limits(rate=1)})
    assert queue.client.queues() == []
    assert queue.delete() == 0


def test_with_parents_all_children_of_one_have_one_home(open_queue: OpenQueue) -> None:
    queue = open_queue(partitions=PARTITIONS, streams=8, streams_per_shard=2, parents=1, max_in_flight=2)
    ids = queue.write_many([(n, f"{TENANTS[1]}/child-{n}") for n in range(6)])
    assert {split(each)[1] for each in ids} == {1}
    assert len(queue.read_many(9)) == 2
    assert queue.tenant(TENANTS[1]).in_flight == 2


def test_many_deliveries_of_all_partitions_are_settled_by_one_call(queue: Queue) -> None:
    queue.configure(result_ttl=60)
    ids = queue.write_many([(n, tenant) for n, tenant in enumerate(TENANTS.values())])
    found = queue.read_many(9)
    assert queue.ack_many([*found, found[0]], results=[each.payload for each in [*found, found[0]]]) == []
    assert [queue.result(each) for each in ids] == [0, 1, 2]
    again = queue.ack_many(found)
    assert {each.message_id for each in again} == {*ids}


@pytest.mark.once
def test_a_queue_that_is_there_in_parts_says_how_much_is_done(world: World, queue: Queue) -> None:
    queue.write_many([("x", tenant) for tenant in TENANTS.values()])
    other = queue.state.parts.states[2].keys
    world.raw.delete(*world.raw.keys(f"shardq:{{{other.name}}}:*"))
    with pytest.raises(PartlyDone, match="2 were done"):
        queue.purge()


def test_a_queue_that_is_not_empty_keeps_all_its_partitions(queue: Queue) -> None:
    """Whoever holds a message: the head, or the partition that would be deleted first."""
    for number in range(PARTITIONS):
        queue.write("kept", shard_key=TENANTS[number])
        with pytest.raises(QueueNotEmpty, match="holds 1 message, dead letters included, and not 0: nothing was"):
            queue.delete(expected=0)
        queue.read().ack()
    for tenant in TENANTS.values():
        queue.write(tenant, shard_key=tenant)
    assert sorted(each.payload for each in queue.read_many(9)) == sorted(TENANTS.values())


def test_what_is_written_while_a_queue_is_deleted_keeps_it(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is seen after other partitions are gone: these are there again, as they were."""
    queue.configure(max_deliveries=7)
    queue.set_limits({TENANTS[2]: Limits(max_in_flight=1)})
    queue.write("kept", shard_key=TENANTS[0])
    monkeypatch.setattr(ways, "_check_empty", lambda *_: nothing())
    with pytest.raises(QueueNotEmpty):
        queue.delete(expected=0)
    queue.write_many([(n, TENANTS[2]) for n in range(3)])
    found = queue.read_many(9)
    assert sorted(str(each.payload) for each in found) == ["0", "kept"]
    queue.ack_many(found)
    layer: Any = queue
    assert [each.config.max_deliveries for each in layer.state.parts.states] == [7] * PARTITIONS


def nothing() -> Op[None]:
    """Find that all are empty."""
    yield from ()
