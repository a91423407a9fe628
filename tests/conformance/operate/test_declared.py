"""Settings are declared by who has them: others wait for the queue, differences are dealt with, queues are listed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from shardq import Client, ConfigError, Empty, Limits, Message, Queue, QueueMissing, QueueNotEmpty, Where
from shardq.client.schedules import Schedules
from shardq.ops.operate.declare import declare
from shardq.ops.operate.queues import delete
from shardq.ops.queue.steps import Call, Op
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.surface import calls, differences, not_called

CALLS: dict[str, Callable[[Queue], Any]] = {
    "Queue.ack_many": lambda queue: queue.ack_many([]),
    "Queue.actions": lambda queue: queue.actions(),
    "Queue.assign": lambda queue: queue.assign(["t"]),
    "Queue.assignment": lambda queue: queue.assignment(),
    "Queue.cancel": lambda queue: queue.cancel("1-1-0"),
    "Queue.cancel, by a filter": lambda queue: queue.cancel(Where(tenant="t")),
    "Queue.configure": lambda queue: queue.configure(max_len=5),
    "Queue.controls": lambda queue: queue.controls(),
    "Queue.dead": lambda queue: queue.dead(),
    "Queue.delete_dead": lambda queue: queue.delete_dead([]),
    "Queue.delete_dead, by a filter": lambda queue: queue.delete_dead(Where(tenant="t")),
    "Queue.delete_dead, by id": lambda queue: queue.delete_dead(ids=["1-1-0"]),
    "Queue.delete_plan": lambda queue: queue.delete_plan("gold"),
    "Queue.failures": lambda queue: queue.failures(),
    "Queue.history": lambda queue: queue.history(),
    "Queue.journal": lambda queue: queue.journal(),
    "Queue.len": lambda queue: queue.len(),
    "Queue.limits": lambda queue: queue.limits(),
    "Queue.nack_many": lambda queue: queue.nack_many([]),
    "Queue.outlook": lambda queue: queue.outlook(),
    "Queue.partitions": lambda queue: queue.partitions(),
    "Queue.pause": lambda queue: queue.pause(),
    "Queue.pause, a shard key": lambda queue: queue.pause("t"),
    "Queue.paused": lambda queue: queue.paused(),
    "Queue.peek": lambda queue: queue.peek(),
    "Queue.peek, at the dead": lambda queue: queue.peek(state="dead"),
    "Queue.plans": lambda queue: queue.plans(),
    "Queue.purge": lambda queue: queue.purge(),
    "Queue.purge, of one": lambda queue: queue.purge(shard_key="t"),
    "Queue.read": lambda queue: queue.read(),
    "Queue.read_many": lambda queue: queue.read_many(3),
    "Queue.redrive": lambda queue: queue.redrive([]),
    "Queue.redrive, by a filter": lambda queue: queue.redrive(Where(tenant="t")),
    "Queue.reject_many": lambda queue: queue.reject_many([], "no"),
    "Queue.resize": lambda queue: queue.resize(8),
    "Queue.result": lambda queue: queue.result("1-1-0", timeout=0),
    "Queue.resume": lambda queue: queue.resume(),
    "Queue.retry_now": lambda queue: queue.retry_now(Where(tenant="t")),
    "Queue.set_limits": lambda queue: queue.set_limits({"t": Limits(rate=1)}),
    "Queue.set_plan": lambda queue: queue.set_plan("gold", rate=1),
    "Queue.set_weights": lambda queue: queue.set_weights({"t": 2}),
    "Queue.settings": lambda queue: queue.settings(),
    "Queue.stats": lambda queue: queue.stats(),
    "Queue.status": lambda queue: queue.status("1-1-0"),
    "Queue.stop_action": lambda queue: queue.stop_action("abc"),
    "Queue.take_over": lambda queue: queue.take_over("abc"),
    "Queue.tenant": lambda queue: queue.tenant("t"),
    "Queue.tenants": lambda queue: queue.tenants(),
    "Queue.unassign": lambda queue: queue.unassign(),
    "Queue.verdict": lambda queue: queue.verdict(),
    "Queue.weights": lambda queue: queue.weights(),
    "Queue.workers": lambda queue: queue.workers(),
    "Queue.write": lambda queue: queue.write(1, shard_key="t"),
    "Queue.write_many": lambda queue: queue.write_many([(1, "t")]),
    "Schedules.add": lambda queue: queue.schedules.add("often", "call", shard_key="t", every=60),
    "Schedules.list": lambda queue: queue.schedules.list(),
    "Schedules.pause": lambda queue: queue.schedules.pause("often"),
    "Schedules.remove": lambda queue: queue.schedules.remove("often"),
    "Schedules.resume": lambda queue: queue.schedules.resume("often"),
    "Schedules.run": lambda queue: queue.schedules.run("often"),
}
"""Every call that needs a queue."""

APART = {
    "Queue.declare": "it creates the queue",
    "Queue.delete": "it returns 0, so that it can be repeated",
}


def test_each_call_is_made_of_a_queue_that_is_not_there() -> None:
    assert differences(CALLS, calls(Queue, Schedules), APART) == not_called(CALLS) == []


@pytest.mark.everywhere
def test_who_has_no_settings_is_told_that_there_is_no_queue_and_creates_none(world: World, queue_name: str) -> None:
    """A mistyped name must not look like an empty queue: an autoscaler would take all workers away."""
    queue = world.client().queue(queue_name)
    for call in CALLS.values():
        with pytest.raises(QueueMissing, match=f"there is no queue '{queue_name}'"):
            call(queue)
    assert not [key for key in world.stored() if queue_name in key]


@pytest.mark.everywhere
def test_who_has_settings_for_it_counts_nothing_until_it_is_there(world: World, queue_name: str) -> None:
    queue = world.client().queue(queue_name, streams=2)
    none = queue.stats()
    assert (queue.len(), none.backlog, none.runnable, none.written, none.streams, queue.dead()) == (0, 0, 0, 0, (), [])
    assert not [key for key in world.stored() if queue_name in key]
    queue.write(1, shard_key="t")
    assert (queue.len(), queue.stats().written) == (1, 1)


def test_who_may_not_create_it_is_told_so_in_spite_of_settings(world: World, queue_name: str) -> None:
    queue = world.client().queue(queue_name, create=False, streams=2)
    for look in (queue.len, queue.stats, queue.dead):
        with pytest.raises(QueueMissing):
            look()


def test_a_deleted_queue_is_missing_even_to_who_knew_it(world: World, open_queue: OpenQueue, queue_name: str) -> None:
    queue, other = open_queue(streams=2), world.client().queue(queue_name)
    queue.write(1, shard_key="t")
    assert (other.len(), len(other.stats().streams), other.dead()) == (1, 2, [])
    queue.delete(expected=1)
    for look in (other.len, other.stats, other.dead):
        with pytest.raises(QueueMissing, match=f"there is no queue '{queue_name}'"):
            look()
    assert (queue.len(), queue.stats().streams, queue.dead()) == (0, (), [])


def test_a_time_that_redis_rounds_is_no_difference(world: World, queue_name: str) -> None:
    """Redis keeps times in whole ms."""
    for _ in range(2):
        queue = world.client().queue(queue_name, streams=1, visibility_timeout=1.23456, on_mismatch="raise")
        assert queue.declare().visibility_timeout == 1.235
    with pytest.raises(ConfigError, match="visibility_timeout"):
        world.client().queue(queue_name, visibility_timeout=1.2, on_mismatch="raise").declare()


@pytest.mark.everywhere
def test_who_has_settings_creates_it_and_the_others_use_it(world: World, queue_name: str) -> None:
    other = world.client().queue(queue_name)
    with pytest.raises(QueueMissing):
        other.write("too soon", shard_key="t")
    owner = world.client().queue(queue_name, streams=3, window=0, max_in_flight=2)
    assert owner.declare().max_in_flight == 2
    other.write("now", shard_key="t")
    assert other.read().payload == "now"
    assert (other.settings().streams, other.settings().window) == (3, 0)


def test_who_may_create_it_and_has_not_is_told_so(world: World, queue_name: str) -> None:
    queue = world.client().queue(queue_name, streams=2)
    with pytest.raises(QueueMissing, match="its first write or read creates it"):
        queue.set_limits({"t": Limits(max_in_flight=1)})
    queue.declare()
    queue.set_limits({"t": Limits(max_in_flight=1)})


def test_defaults_are_settings_if_that_is_said(world: World, queue_name: str) -> None:
    world.client().queue(queue_name, create=True).write(1, shard_key="t")
    assert world.client().queue(queue_name).settings().streams == 64
    with pytest.raises(QueueMissing):
        world.client().queue(f"{queue_name}.2", create=False, streams=2).write(1, shard_key="t")


@pytest.mark.usefixtures("real")
def test_a_read_waits_for_the_queue_as_for_a_message(world: World, queue_name: str) -> None:
    reader = world.client().queue(queue_name)
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(reader.read(block=30)))
    waiting.start()
    world.client().queue(queue_name, streams=2).write("first", shard_key="t")
    waiting.join(30)
    assert [each.payload for each in found] == ["first"]


@pytest.mark.usefixtures("real")
def test_a_read_says_in_the_end_that_there_is_no_queue(world: World, queue_name: str) -> None:
    begun = time.monotonic()
    with pytest.raises(QueueMissing):
        world.client().queue(queue_name).read(block=0.4)
    assert time.monotonic() - begun >= 0.4


def test_a_publish_creates_no_queue(world: World, queue_name: str) -> None:
    client = world.client()
    there = client.queue(f"{queue_name}.there", streams=2)
    there.declare()
    client.bind("news", there, router=queue_name)
    client.bind("news", f"{queue_name}.absent", router=queue_name)
    assert client.publish("news", 1, shard_key="t", router=queue_name).keys() == {there.name}
    assert there.len() == 1
    with pytest.raises(QueueMissing):
        client.queue(f"{queue_name}.absent").len()


def test_a_difference_is_raised_in_each_call_as_long_as_there_is_one(
    world: World, open_queue: OpenQueue, queue_name: str
) -> None:
    queue = open_queue(streams=4, window=1)
    queue.write(1, shard_key="t")
    strict = world.client().queue(queue_name, streams=8, window=1, max_deliveries=3, on_mismatch="raise")
    assert strict.stats().backlog == 1, "who only looks is told nothing"
    for _ in range(2):
        with pytest.raises(ConfigError, match="max_deliveries=16 instead of 3, streams=4 instead of 8"):
            strict.write(2, shard_key="t")
    assert queue.len() == 1
    queue.configure(max_deliveries=3)
    queue.resize(8)
    strict.write(2, shard_key="t")
    assert queue.len() == 2


def test_a_difference_is_applied_once(world: World, open_queue: OpenQueue, queue_name: str) -> None:
    queue = open_queue(streams=4, visibility_timeout=30)
    queue.write(1, shard_key="t")
    owner = world.client().queue(queue_name, streams=6, visibility_timeout=60, max_len=9, on_mismatch="apply")
    owner.write(2, shard_key="t")
    now = queue.settings()
    assert (now.streams, now.visibility_timeout, now.max_len) == (6, 60, 9)
    queue.configure(max_len=5)
    owner.write(3, shard_key="t")
    assert queue.settings().max_len == 5, "two versions of a program must not take turns"


def test_a_setting_that_was_not_named_is_no_difference(
    world: World, open_queue: OpenQueue, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    open_queue(streams=4, max_len=7).write(1, shard_key="t")
    world.client().queue(queue_name, streams=4, on_mismatch="raise").write(2, shard_key="t")
    world.client().queue(queue_name, streams=5).write(3, shard_key="t")
    assert caplog.text.count("settings belong to the queue") == 1
    with pytest.raises(ConfigError, match="on_mismatch must be one of warn, raise, apply"):
        world.client().queue(queue_name, streams=4, on_mismatch="ignore")  # type: ignore[arg-type]


def test_several_who_apply_at_once_agree_in_the_end(world: World, open_queue: OpenQueue, queue_name: str) -> None:
    open_queue(streams=2).write(0, shard_key="t")
    deploys = [
        world.client().queue(queue_name, streams=4, max_len=100, max_deliveries=5, on_mismatch="apply")
        for _ in range(4)
    ]
    threads = [threading.Thread(target=each.write, args=(1,), kwargs={"shard_key": "t"}) for each in deploys]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    now = deploys[0].settings()
    assert (now.streams, now.max_len, now.max_deliveries, deploys[0].len()) == (4, 100, 5, 5)


@pytest.mark.everywhere
def test_queues_are_listed_until_they_are_deleted(world: World, queue_name: str) -> None:
    client = world.client()
    names = [f"{queue_name}.{number}" for number in (2, 0, 1)]
    for name in names:
        client.queue(name, streams=2).declare()
    client.queue(f"{queue_name}.never", streams=2)
    assert client.queues() == sorted(names)
    client.queue(names[0]).delete()
    assert client.queues() == sorted(names[1:])


@pytest.mark.once
@pytest.mark.usefixtures("real")
def test_the_list_may_be_long(world: World, client: Client, queue_name: str) -> None:
    world.raw.zadd("shardq:queues", {f"{queue_name}.{number:05}": 0 for number in range(2500)})
    assert client.queues() == [f"{queue_name}.{number:05}" for number in range(2500)]


def held_by(queue: Queue) -> None:
    """One message in each state: waiting, delayed, in flight, dead."""
    queue.write_many([Message(number, "t") for number in range(3)])
    queue.write("later", shard_key="t", delay=600)
    queue.read().reject("bad")
    queue.read()


def test_a_queue_that_holds_messages_is_not_deleted_unless_that_is_said(world: World, queue: Queue) -> None:
    held_by(queue)
    for expected in (0, 3, 5):
        with pytest.raises(QueueNotEmpty, match=f"holds 4 messages, dead letters included, and not {expected}"):
            queue.delete(expected=expected)
    assert (queue.len(), queue.stats().dead, queue.stats().delayed) == (2, 1, 1)
    assert queue.delete(expected=4) == 4
    assert not [key for key in world.stored() if queue.name in key]
    assert queue.delete() == 0


@pytest.mark.everywhere
def test_deleting_leaves_no_key_whatever_the_queue_had(world: World, open_queue: OpenQueue) -> None:
    queue = open_queue(streams=9, streams_per_shard=2, journal=100, parents=1, max_in_flight=3)
    held_by(queue)
    queue.set_weights({"t": 3})
    queue.assign(["t", "u"])
    queue.write("once", shard_key="t", dedup_key="d")
    assert queue.delete(expected=None) == 5
    assert not [key for key in world.stored() if queue.name in key]
    assert queue.client.queues() == []


def test_a_queue_that_is_created_while_it_is_deleted_is_listed(
    world: World, open_queue: OpenQueue, queue_name: str
) -> None:
    queue, other = open_queue(streams=2), world.client()

    def creating(op: Op[int]) -> Op[int]:
        """Let another client create the queue just before its name is taken out of the list."""
        outcome: Any = None
        while True:
            try:
                step = op.send(outcome)
            except StopIteration as done:
                return int(done.value)
            if isinstance(step, Call) and step.args[:1] == ("-",):
                yield from declare(other.queue(queue_name, streams=2).state)
            outcome = yield step

    assert queue.client.run(creating(delete(queue.state, 0))) == 0
    assert queue_name in other.queues()
    assert other.queue(queue_name).stats().streams == (0, 0)


def test_a_deleted_queue_can_be_made_again(world: World, open_queue: OpenQueue, queue_name: str) -> None:
    queue, other = open_queue(streams=2), world.client().queue(queue_name)
    old = queue.write("old", shard_key="t")
    other.write("old", shard_key="t")
    queue.delete(expected=None)
    with pytest.raises(QueueMissing):
        other.write("lost", shard_key="t")
    assert queue.write("new", shard_key="t") > old
    other.write("newer", shard_key="t")
    assert {queue.read().payload, queue.read().payload} == {"new", "newer"}
    with pytest.raises(Empty):
        queue.read()


@pytest.mark.everywhere
def test_a_batch_for_a_queue_that_was_deleted_meanwhile_is_told_so(world: World, queue_name: str) -> None:
    """As a whole, as a single write is: nothing of it was stored."""
    owner, writer = (world.client().queue(queue_name) for _ in range(2))
    world.client().queue(queue_name, streams=4).declare()
    writer.write("first", shard_key="t")
    owner.delete(expected=None)
    with pytest.raises(QueueMissing, match=f"there is no queue '{queue_name}'"):
        writer.write_many([(number, f"t{number}") for number in range(600)])
