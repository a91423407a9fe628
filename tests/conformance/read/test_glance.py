"""glance: what a read would find, without a lease; and the same in the answer of each read."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from shardq import Queue
from shardq.ops.read.command import read_call, request_of
from shardq.ops.read.glance import NO_SCORE, Glance, glance
from shardq.ops.read.waiting import Outstanding
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.inner import run
from tests.waiting import eventually


def seen(queue: Queue) -> Glance:
    """What a glance at *queue* says."""
    return queue.client.run(glance(queue.state, queue.state.until()))


def read_raw(queue: Queue, count: int = 1) -> Any:
    """The answer to one read call."""
    state = queue.state
    call = read_call(state, request_of(state, count, 50.0, None), 0.0, Outstanding(), declare=64)
    return run(queue, call.call)


def test_each_read_tells_what_it_left_as_a_glance_would(open_queue: OpenQueue) -> None:
    """With a window of 1, one message of each tenant lies in the streams; the others wait for a turn after it."""
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    queue.write_many([(number, tenant) for tenant in "abc" for number in range(4)])
    assert seen(queue) == Glance(quiet=3)
    left = set[tuple[int, int]]()
    for count in (1, 1, 5, 2, 3, 1):
        reply = read_raw(queue, count)
        quiet, turns, first, virtual = reply[8:]
        told = Glance(quiet, turns, first=first, virtual=virtual)
        now = seen(queue)
        if first == NO_SCORE:  # the read has not looked
            now = replace(now, first=NO_SCORE)
        assert told == now
        left.add((told.quiet, told.turns))
    assert len(left) > 1
    assert (told.quiet, told.turns, told.first, told.may_have_some) == (0, 0, NO_SCORE, False)


def test_a_glance_says_that_a_lease_ended_or_a_message_came_due(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue()
    queue.write("later", shard_key="a", delay=50)
    assert seen(queue) == Glance()
    world.elapse(queue, 60)
    assert seen(queue) == Glance(has_come=True)
    assert seen(queue).may_have_some
    read_raw(queue)
    assert seen(queue) == Glance()
    world.elapse(queue, 60)
    assert seen(queue) == Glance(has_come=True)
    assert queue.read().payload == "later"


def test_a_queue_with_a_legacy_stream_may_always_have_some(
    open_queue: OpenQueue, queue_name: str, world: World
) -> None:
    key = f"{{{queue_name}}}:plain"
    world.raw.xadd(key, {"payload": "old"})
    world.raw.xgroup_create(key, "group", "0")
    queue = open_queue(streams=2, legacy_stream=key, legacy_group="group")
    queue.declare()
    assert seen(queue).may_have_some
    assert queue.read_many(1)


def test_a_glance_at_a_queue_that_is_not_there_sees_nothing_and_makes_none(open_queue: OpenQueue) -> None:
    queue = open_queue()
    queue.write(1, shard_key="a")
    missing = queue.client.queue(f"{queue.name}.missing")
    assert seen(missing) == Glance(is_there=False)
    assert read_raw(queue)[8:] == [0, 0, NO_SCORE, 0]
    assert missing.name not in queue.client.queues()


def listed(queue: Queue, *tenants: str, number: int = 30) -> None:
    """Let each of *tenants* have many messages, and wait for its turn."""
    queue.write_many([(at, tenant) for tenant in tenants for at in range(number)])


def test_turns_count_as_often_as_their_weights_say(open_queue: OpenQueue, world: World) -> None:
    """Also weights that change, end or are a plan's, while their tenants wait."""
    queue = open_queue(streams=2, streams_per_shard=1, window=1, fair="messages")
    queue.declare()
    queue.set_plan("gold", weight=4)
    queue.set_weights({"a": 5})
    listed(queue, "a", "b", "c")
    queue.set_limits({"c": "gold"})
    queue.ack_many(queue.read_many(20))  # until nothing of them lies in the streams
    assert (seen(queue).quiet, seen(queue).turns) == (0, 5 + 1 + 4)
    queue.set_plan("gold", weight=7)
    assert seen(queue).turns == 5 + 1 + 7
    queue.set_weights({"a": 2, "b": 3})
    assert seen(queue).turns == 2 + 3 + 7
    queue.set_weights({"c": 9})
    assert seen(queue).turns == 2 + 3 + 9
    queue.set_weights({"a": 6}, seconds=60)
    assert seen(queue).turns == 6 + 3 + 9
    queue.set_weights({"a": 6}, seconds=0.05)
    eventually(lambda: read_raw(queue)[9] == 1 + 3 + 9)
    assert world.census(queue).problems() == []
    while some := queue.read_many(7):
        queue.ack_many(some)
    assert seen(queue).turns == 0
    assert world.census(queue).problems() == []
