"""A drained partition is removed once its time is over, and never while anybody can ask for anything of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from shardq import BackendTimeout, Client, Queue, QueueMissing, Where, Written
from shardq.model.call import Call as TaskCall
from shardq.ops.inspect.stats import numbers as looked_at
from shardq.ops.queue.steps import Call, Step
from shardq.ops.schedules import stored
from shardq.ops.write.outgoing import compose
from shardq.partitions.homes import home
from shardq.partitions.tidy import LOOK_INTERVAL, RETENTION, tidy
from shardq.partitions.writes import deal_again
from shardq.testing import ManualClock
from tests.servers import Server
from tests.simulated import ClockedDriver, clocked_client

_HOMES = {home(f"tenant-{number}", 3): f"tenant-{number}" for number in range(20)}
TENANTS = {number: _HOMES[number] for number in range(3)}
"""A tenant of each partition of three."""
CALL: TaskCall[Any] = TaskCall("app.tasks.report", {})
SOON = 60.0
OpenClient = Callable[[], tuple[Client, ClockedDriver]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_client(server: Server, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenClient]:
    made = []

    def open_client() -> tuple[Client, ClockedDriver]:
        made.append(clocked_client(server, clock))
        monkeypatch.setattr(made[-1][0], "_run_in_background", made[-1][0].run)  # so a read has seen what it did
        return made[-1]

    yield open_client
    for _, driver in made:
        driver._connection.close()


@pytest.fixture
def queue(open_client: OpenClient, queue_name: str) -> Queue:
    client, _ = open_client()
    queue = client.queue(queue_name, partitions=3, streams=2, streams_per_shard=2, result_ttl=86_400, dedup_window=60)
    queue.write_many(list(TENANTS.items()))
    return queue


def numbers(queue: Queue) -> list[int]:
    """The partitions that the queue has, as one sees who looks anew."""
    return [each.number for each in queue.partitions() if each.stats and each.stats.id]


def emptied(queue: Queue) -> None:
    queue.ack_many(queue.read_many(100))


def upkept(queue: Queue) -> None:
    """Read a few times, as a worker does."""
    for _ in range(5):
        assert queue.read_many(10) == []


def test_a_drained_partition_is_removed_when_its_time_is_over(server: Server, clock: ManualClock, queue: Queue) -> None:
    queue.resize(partitions=1)
    emptied(queue)
    upkept(queue)
    clock.advance(RETENTION - SOON)
    upkept(queue)
    assert numbers(queue) == [0, 1, 2]
    clock.advance(2 * SOON + LOOK_INTERVAL)
    upkept(queue)
    assert numbers(queue) == [0]
    assert not [key for key in server.client().keys("*") if b"#" in key]
    assert (queue.settings().partitions, queue.len()) == (1, 0)
    assert server.client().hget(f"shardq:{{{queue.name}}}:meta", "partitions") is None
    queue.write_many(list(TENANTS.items()))
    clock.advance(1)
    assert sorted(each.payload for each in queue.read_many(10)) == [0, 1, 2]


def test_it_is_removed_though_the_upkeep_of_its_client_forgets_what_it_knew(
    server: Server, clock: ManualClock, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it left the map with all its keys there, and nobody looked for them any more."""

    def forgotten(state: Any) -> Any:
        found = yield from looked_at(state)
        state.forget()
        return found

    monkeypatch.setattr("shardq.partitions.tidy.numbers", forgotten)
    queue.resize(partitions=1)
    emptied(queue)
    clock.advance(RETENTION + SOON + LOOK_INTERVAL)
    upkept(queue)
    assert numbers(queue) == [0]
    assert not [key for key in server.client().keys("*") if b"#" in key]


def test_the_highest_goes_first_and_only_those_that_are_not_written_to(clock: ManualClock, queue: Queue) -> None:
    queue.resize(partitions=2)
    emptied(queue)
    clock.advance(2 * RETENTION)
    upkept(queue)
    assert [(each.number, each.is_written) for each in queue.partitions()] == [(0, True), (1, True)]
    queue.resize(partitions=3)
    queue.write("x", shard_key=TENANTS[2])
    assert [each.payload for each in queue.read_many(10)] == ["x"]


def waiting(queue: Queue) -> None:
    """It has yet to be read."""


def delayed(queue: Queue) -> None:
    _read(queue).nack(delay=3 * RETENTION)


def in_flight(queue: Queue) -> None:
    queue.read_many(10, visibility_timeout=4 * RETENTION)


def dead(queue: Queue) -> None:
    _read(queue).reject("bad")


def with_a_result(queue: Queue) -> None:
    _read(queue).ack(result="kept")


def _read(queue: Queue) -> Any:
    for each in queue.read_many(10):
        if each.payload == 2:
            found = each
        else:
            each.ack()
    return found


@pytest.mark.parametrize("keeps", [waiting, delayed, in_flight, dead, with_a_result])
def test_it_stays_while_it_has_anything(
    open_client: OpenClient, clock: ManualClock, queue: Queue, keeps: Callable[[Queue], None]
) -> None:
    queue.resize(partitions=1)
    keeps(queue)
    clock.advance(2 * RETENTION)
    looking = open_client()[0].queue(queue.name)
    looking.partitions()
    looking.pause()
    for _ in range(5):
        assert looking.read_many(10) == []
        clock.advance(LOOK_INTERVAL)
    assert numbers(looking) == [0, 1, 2]


def test_it_stays_while_it_has_a_schedule(server: Server, clock: ManualClock, queue: Queue) -> None:
    queue.resize(partitions=1)
    emptied(queue)
    key = f"shardq:{{{queue.name}#2.0}}:schedule-due"
    server.client().zadd(key, {"nightly": 2e12})
    clock.advance(2 * RETENTION)
    upkept(queue)
    assert numbers(queue) == [0, 1, 2]
    server.client().zrem(key, "nightly")
    clock.advance(LOOK_INTERVAL)
    upkept(queue)
    assert numbers(queue) == [0]


def test_a_schedule_that_was_stored_by_an_old_map_moves_home_and_then_it_is_removed(
    clock: ManualClock, queue: Queue
) -> None:
    queue.configure(max_schedules=9)
    old: Any = queue.client.state_of_part(queue.state, 2, f"{queue.name}#2.0")
    queue.resize(partitions=1)
    emptied(queue)
    add = stored.add(old, queue.client.codecs, "nightly", CALL, TENANTS[2], None, "UTC", 3600, "skip", False, 5.0)
    queue.client.run(add)
    clock.advance(2 * RETENTION)
    upkept(queue)
    assert numbers(queue) == [0, 1, 2]
    assert [each.name for each in queue.client.run(stored.listed(queue.state, 5.0))] == ["nightly"]
    clock.advance(LOOK_INTERVAL)
    upkept(queue)
    assert numbers(queue) == [0]
    assert [each.name for each in queue.schedules.list()] == ["nightly"]


def test_it_stays_while_a_write_may_come_again(clock: ManualClock, queue: Queue) -> None:
    """For an hour, or a longer `dedup_window`, after the last write."""
    queue.configure(dedup_window=3 * RETENTION)
    queue.resize(partitions=1)
    emptied(queue)
    clock.advance(2 * RETENTION)
    upkept(queue)
    assert numbers(queue) == [0, 1, 2]
    clock.advance(RETENTION + LOOK_INTERVAL)
    upkept(queue)
    assert numbers(queue) == [0]


@pytest.mark.parametrize("at", range(3))
def test_a_resize_at_each_moment_of_it_finds_all_that_it_writes_to(
    open_client: OpenClient, clock: ManualClock, queue: Queue, at: int
) -> None:
    """Before the head's epoch moves, before the partition is deleted, before it leaves the map."""
    queue.resize(partitions=2)
    emptied(queue)
    clock.advance(2 * RETENTION)
    client, driver = open_client()
    tidying, other = client.queue(queue.name), open_client()[0].queue(queue.name)
    tidying.partitions()
    seen: list[str] = []

    def interrupt(step: Step, is_done: bool) -> None:
        if isinstance(step, Call) and step.script.name in ("configure", "delete") and not is_done:
            seen.append(step.script.name)
            if len(seen) == at + 1:
                other.resize(partitions=3)

    driver.hook = interrupt
    assert tidying.read_many(10) == []
    driver.hook = None
    assert seen[: at + 1] == ["configure", "delete", "configure"][: at + 1]
    after = open_client()[0].queue(queue.name)
    after.partitions()
    ids = after.write_many(list(TENANTS.items()))
    assert [int(each.partition("@")[2] or 0) for each in ids] == [0, 1, 2]
    assert sorted(each.payload for each in after.read_many(10)) == [0, 1, 2]
    assert numbers(after) == [0, 1, 2]


def test_no_reader_waits_for_it_and_it_is_done_once_at_a_time(
    open_client: OpenClient, clock: ManualClock, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    queue.resize(partitions=1)
    emptied(queue)
    clock.advance(2 * RETENTION)
    monkeypatch.setattr(queue.client, "_run_in_background", begun.append)
    upkept(queue)
    begun[:] = [each for each in begun if each.__name__ == "tidy"]
    (look,) = begun
    queue.client.run(look)
    upkept(queue)
    assert [each.__name__ for each in begun].count("tidy") == 2
    assert numbers(queue) == [0, 1]


def test_who_looks_while_it_is_being_removed_misses_nothing(
    open_client: OpenClient, clock: ManualClock, queue: Queue
) -> None:
    """It is deleted first, and leaves the map then. Between these two nobody is told that there is no such queue."""
    queue.resize(partitions=2)
    emptied(queue)
    clock.advance(2 * RETENTION)
    queue.write(0, shard_key=TENANTS[0])
    client, driver = open_client()
    tidying, looking = client.queue(queue.name), open_client()[0].queue(queue.name)
    for each in (tidying, looking):
        each.len()
    looking.state.parts.common.tidy_at = math.inf
    looking.state.parts.turns._looked_at = math.inf  # so it reads from all
    seen: list[Any] = []

    def interrupt(step: Step, is_done: bool) -> None:
        if isinstance(step, Call) and step.script.name == "delete" and is_done:
            seen.append((looking.len(), looking.stats().backlog))
            seen.extend(each.payload for _ in range(2) for each in looking.read_many(30))

    driver.hook = interrupt
    assert tidying.read_many(10) == []
    assert seen == [(1, 1), 0]
    assert numbers(queue) == [0, 1]


def test_who_changes_anything_while_it_is_being_removed_does_so_in_the_others(
    open_client: OpenClient, clock: ManualClock, queue: Queue
) -> None:
    queue.configure(max_schedules=9)
    queue.resize(partitions=2)
    emptied(queue)
    clock.advance(2 * RETENTION)
    queue.write_many([(n, TENANTS[1]) for n in range(4)])
    client, driver = open_client()
    tidying, looking = client.queue(queue.name), open_client()[0].queue(queue.name)
    for each in (tidying, looking):
        each.len()
    looking.state.parts.common.tidy_at = math.inf
    seen: list[Any] = []

    def interrupt(step: Step, is_done: bool) -> None:
        if isinstance(step, Call) and step.script.name == "delete" and is_done:
            layer = looking.state.parts
            for change in changes:
                looking.state.parts = layer  # the first one that fails to find it asks for the map
                seen.append(change())

    changes: list[Callable[[], object]] = [
        lambda: looking.set_weights({TENANTS[1]: 2}),
        lambda: len(looking.peek(10).messages),
        lambda: len(looking.dead(10)),
        lambda: looking.schedules.add("nightly", CALL, shard_key=TENANTS[1], every=3600).name,
        lambda: bool(looking.schedules.run("nightly")),
        lambda: looking.cancel(Where(state="waiting"), limit=1).wait().done,
        lambda: looking.purge(shard_key=TENANTS[1]).waiting,
        looking.purge,
    ]
    driver.hook = interrupt
    assert tidying.read_many(10) == []
    assert seen == [{TENANTS[1]: 2}, 4, 0, "nightly", True, 1, 4, 0]
    assert numbers(queue) == [0, 1]


def test_an_action_goes_on_in_the_others_when_a_partition_is_removed(
    open_client: OpenClient, clock: ManualClock, queue: Queue
) -> None:
    """Whoever has begun it, and who takes it over by a map that is old by then."""
    queue.resize(partitions=2)
    emptied(queue)
    clock.advance(2 * RETENTION)
    queue.write_many([(n, TENANTS[n % 2]) for n in range(4)])
    tidying, looking = [cast("Any", open_client()[0].queue(queue.name)) for _ in range(2)]
    assert tidying.len() == looking.len() == 4
    action, layer = looking.cancel(Where(state="waiting"), rate=10), looking.state.parts
    tidying.client.run(tidy(tidying.state.parts))
    assert numbers(tidying) == [0, 1]
    assert (action.wait(0).state, action.status().state) == ("running", "running")
    clock.advance(SOON)  # nobody has worked on it for so long
    looking.state.parts = layer
    taken = looking.take_over(action.id)
    assert (taken.wait().state, taken.left, taken.stop().done) == ("done", 0, 4)
    assert queue.len() == 0


def test_a_write_without_time_left_is_not_told_that_the_queue_is_gone(clock: ManualClock, queue: Any) -> None:
    """A partition of its map is gone; the queue is there."""
    old = queue.state.parts
    message = compose(queue.state, old.codecs, "x", TENANTS[2])
    queue.resize(partitions=1)
    emptied(queue)
    clock.advance(RETENTION + 2 * SOON)
    upkept(queue)
    assert numbers(queue) == [0]
    missed = [QueueMissing("there is no such partition")]
    ends = [deal_again(old.whole, old.states[2], [message], [*missed], clock.monotonic() + left) for left in (-1, SOON)]
    (late,), (written,) = [queue.client.run(each) for each in ends]
    assert isinstance(late, BackendTimeout)
    assert isinstance(written, Written)
    assert [each.message_id for each in queue.read_many(10)] == [written]
